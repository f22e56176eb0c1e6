// All decisions, the latest first, with filters that are kept in the address.

import { policyPath, query } from "../api.js";
import { html } from "../dom.js";
import { amounts, clock, number } from "../format.js";
import { useReply } from "../poll.js";
import { navigate } from "../router.js";
import { GivenText } from "./given_text.js";
import { Empty, Loaded } from "./loaded.js";
import { Pager, usePages } from "./pager.js";
import { PolicyFrame, pageOf, taskPage } from "./policy_frame.js";
import { STATES, stateOf } from "./wording.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 5000;
const PAGE = 50;
const REASONS = ["warm-up", "worth it", "not worth it", "budget", "forced", "explored", "unavailable", "unsettled"];
const FILTERS = /** @type {const} */ (["search", "state", "route", "reason", "since", "until"]);

/** @typedef {Record<(typeof FILTERS)[number], string>} Filters */

/** The filters of the address. */
function filtersOfAddress() {
  const given = new URLSearchParams(location.search);
  return /** @type {Filters} */ (Object.fromEntries(FILTERS.map((name) => [name, given.get(name) ?? ""])));
}

/** @param {string} local A date and time as an input has it. */
function seconds(local) {
  const at = Date.parse(local) / 1000;
  return Number.isNaN(at) ? "" : at;
}

/** @param {{ params: { name: string }, session: import("../session.js").Session }} props */
export default function Decisions({ params: { name }, session }) {
  const filters = filtersOfAddress();
  const pages = usePages([name, location.search]);
  const asked = query({ ...filters, since: seconds(filters.since), until: seconds(filters.until), before: pages.at, limit: PAGE });
  const poll = /** @type {Polled<Api.TaskPage>} */ (useReply(policyPath(name, `/tasks${asked}`), EVERY_MS));
  const filtered = FILTERS.some((each) => filters[each]);
  return html`<${PolicyFrame} name=${name} tab="/decisions" session=${session}>
    <${FilterForm} name=${name} filters=${filters} filtered=${filtered} />
    <${Loaded}
      poll=${poll}
      draw=${(/** @type {Api.TaskPage} */ data) =>
        data.tasks.length || pages.at
          ? html`<${Tasks} name=${name} tasks=${data.tasks} />
              <${Pager} pages=${pages} next=${data.next} back="Newer" forward="Older" />`
          : filtered
            ? html`<${Empty} title="No matching decisions">
                <button type="button" class="button" onClick=${() => navigate(pageOf(name, "/decisions"))}>Show all decisions</button>
              <//>`
            : html`<${Empty} title="No decisions yet">
                <p class="muted">Tasks that are sent to this policy appear here.</p>
                <a class="button" href=${pageOf(name)}>How to send the first one</a>
              <//>`}
    />
  <//>`;
}

/** @param {{ name: string, filters: Filters, filtered: boolean }} props */
function FilterForm({ name, filters, filtered }) {
  const policy = /** @type {Polled<Api.PolicySpec>} */ (useReply(policyPath(name), 60_000));
  const routes = ["model", ...(policy.data?.experts ?? [])];
  /** @param {Event} event */
  const change = (event) => {
    const { name: field, value } = /** @type {HTMLInputElement | HTMLSelectElement} */ (event.target);
    navigate(pageOf(name, `/decisions${query({ ...filters, [field]: value })}`), { replace: true });
  };
  /** @param {{ field: keyof Filters, label: string, options: [string, string][] }} props */
  const Select = ({ field, label, options }) => html`<div class="field">
    <label for=${`filter-${field}`}>${label}</label>
    <select id=${`filter-${field}`} name=${field} value=${filters[field]} onChange=${change}>
      <option value="">any</option>
      ${options.map(([value, text]) => html`<option value=${value} selected=${value === filters[field]}>${text}</option>`)}
    </select>
  </div>`;
  return html`<form class="filters" role="search" aria-label="Filter decisions" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <div class="field">
      <label for="filter-search">Task id contains</label>
      <input id="filter-search" type="search" name="search" value=${filters.search} onChange=${change} />
    </div>
    ${Select({ field: "state", label: "State", options: Object.entries(STATES) })}
    ${Select({ field: "route", label: "Route", options: routes.map((each) => [each, each]) })}
    ${Select({ field: "reason", label: "Reason", options: REASONS.map((each) => [each, each]) })}
    <div class="field wide">
      <label for="filter-since">Since</label>
      <input id="filter-since" type="datetime-local" name="since" value=${filters.since} onChange=${change} />
    </div>
    <div class="field wide">
      <label for="filter-until">Until</label>
      <input id="filter-until" type="datetime-local" name="until" value=${filters.until} onChange=${change} />
    </div>
    ${filtered && html`<a class="button quiet small" href=${pageOf(name, "/decisions")}>Clear filters</a>`}
  </form>`;
}

/** @param {{ name: string, tasks: Api.TaskLine[] }} props */
function Tasks({ name, tasks }) {
  return html`<div class="card flush scroll" tabindex="0" role="region" aria-label="Decisions">
    <table class="data">
      <thead>
        <tr>
          <th>Task</th><th class="optional">Decided</th><th>Route</th><th class="optional">Reason</th><th>State</th><th class="right optional">Expected gain</th>
          <th class="right optional">Cost</th><th class="optional">Reviewers</th>
        </tr>
      </thead>
      <tbody>
        ${tasks.map((task) => {
          const state = stateOf(task.state);
          return html`<tr key=${task.id}>
            <td class="id"><a href=${taskPage(name, task.task)}><${GivenText} text=${task.task} /></a></td>
            <td class="nowrap optional">${clock(task.at)}</td>
            <td class="name">${task.route}</td>
            <td class="nowrap optional">${task.reason}</td>
            <td><span class=${`badge ${state.tone}`}>${state.text}</span></td>
            <td class="right optional">${task.route === "model" ? "–" : number(task.expected_gain)}</td>
            <td class="right nowrap optional">${task.cost === null ? "–" : amounts(task.cost)}</td>
            <td class="id optional">${task.reviewers.map((each, place) => html`${place > 0 && ", "}<${GivenText} text=${each} />`)}</td>
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}
