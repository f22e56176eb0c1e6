// Every policy at a glance: on plan or not, when it runs out, what it has gained, what waits, what is wrong.

import { html, useState } from "../dom.js";
import { counted } from "../format.js";
import { useReply } from "../poll.js";
import { may } from "../session.js";
import { GivenText } from "./given_text.js";
import { Empty, Loaded } from "./loaded.js";
import { pageOf } from "./policy_frame.js";
import { StandingFigures } from "./standing_figures.js";
import { STOPPED, nextUnit, pace, stateText, urgency } from "./wording.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 3000;
const MANY = 8;

/** @typedef {import("../session.js").Session} Session */

/** @param {{ session: Session }} props */
export default function Overview({ session }) {
  const poll = /** @type {Polled<Api.Overview>} */ (useReply("/v1/overview", EVERY_MS));
  const [search, setSearch] = useState("");
  return html`<div class="page">
    <div class="page-head">
      <h1>Policies</h1>
      <div class="row">
        ${poll.data && poll.data.policies.length > MANY &&
        html`<input
          type="search"
          class="filter"
          aria-label="Filter policies by name"
          placeholder="Filter by name"
          value=${search}
          onInput=${(/** @type {InputEvent} */ event) => setSearch(/** @type {HTMLInputElement} */ (event.target).value)}
        />`}
        ${may(session, "admin") && html`<a class="button" href="/console/new">New policy</a>`}
      </div>
    </div>
    <${Loaded} poll=${poll} draw=${(/** @type {Api.Overview} */ data) => html`<${Policies} policies=${data.policies} search=${search} session=${session} />`} />
  </div>`;
}

/** @param {{ policies: Api.Standing[], search: string, session: Session }} props */
function Policies({ policies, search, session }) {
  if (!policies.length)
    return html`<${Empty} title="No policies yet">
      <p class="muted">A policy decides, task by task, whether the model or a person answers, within a budget.</p>
      ${may(session, "admin")
        ? html`<a class="button primary" href="/console/new">Create the first policy</a>`
        : html`<p>Ask somebody whose key has the scope <code>admin</code> to create one.</p>`}
    <//>`;
  const wanted = search.trim().toLowerCase();
  const shown = policies
    .filter((policy) => policy.name.toLowerCase().includes(wanted))
    .sort((a, b) => urgency(b) - urgency(a) || a.name.localeCompare(b.name));
  const alarmed = policies.filter((policy) => policy.alarms.length).length;
  return html`<div class="stack">
    <p class="muted">
      ${counted(policies.length, "policy", "policies")},
      ${" "}${alarmed ? html`<span class="warn-text strong">${counted(alarmed, "needs", "need")} attention</span>` : "none needs attention"}
    </p>
    ${shown.map((standing) => html`<${PolicyCard} key=${standing.name} standing=${standing} />`)}
    ${!shown.length && html`<p class="muted">No policy has “${search}” in its name.</p>`}
  </div>`;
}

/** @param {{ standing: Api.Standing }} props */
function PolicyCard({ standing }) {
  const { name, alarms } = standing;
  const plan = pace(standing);
  return html`<article class="card policy-card">
    <header class="row spread">
      <h2 class="break"><a href=${pageOf(name)}><${GivenText} text=${name} /></a></h2>
      <span class=${`badge ${plan.tone}`}>${plan.text}</span>
    </header>
    <p>${stateText(standing)} <strong>${nextUnit(standing)}</strong></p>
    <${StandingFigures} standing=${standing} />
    ${alarms.length > 0 && html`<${Alarms} alarms=${alarms} />`}
  </article>`;
}

/** @param {{ alarms: Api.Alarm[] }} props */
export function Alarms({ alarms }) {
  return html`<ul class="alarms" aria-label="Alarms">
    ${alarms.map((alarm) => html`<li key=${alarm.kind} class=${`notice ${alarm.kind in STOPPED ? "bad" : "warn"}`}>${alarm.text}</li>`)}
  </ul>`;
}
