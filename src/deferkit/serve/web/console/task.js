// One task: why it went where it went, what came of it, and all that happened to it.

import { policyPath, post, query } from "../api.js";
import { DecisionBars, indices } from "../charts/decision_bars.js";
import { html } from "../dom.js";
import { amounts, clock, number, percent } from "../format.js";
import { useReply } from "../poll.js";
import { Payload } from "../review/payload.js";
import { PayloadText } from "../review/payload_text.js";
import { may } from "../session.js";
import { ConfirmButton } from "./confirm_button.js";
import { Answer, GivenText } from "./given_text.js";
import { Loaded } from "./loaded.js";
import { PolicyFrame, pageOf } from "./policy_frame.js";
import { stateOf } from "./wording.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 5000;

/** @typedef {import("../session.js").Session} Session */

/** @param {{ params: { name: string, task: string }, session: Session }} props */
export default function Task({ params: { name, task }, session }) {
  const poll = /** @type {Polled<Api.TaskReply>} */ (useReply(policyPath(name, `/decisions${query({ task })}`), EVERY_MS));
  const admin = may(session, "admin");
  return html`<${PolicyFrame} name=${name} tab="/decisions" session=${session}>
    <div class="stack">
      <a class="small" href=${pageOf(name, "/decisions")}>← All decisions</a>
      <${Loaded}
        poll=${poll}
        draw=${(/** @type {Api.TaskReply} */ data) => html`
          <${Head} name=${name} found=${data} admin=${admin} onChange=${poll.refresh} />
          <${Why} decision=${data.decision} explanation=${data.explanation} />
          <div class="columns">
            <${Outcome} found=${data} />
            <${Shown} name=${name} found=${data} admin=${admin} onChange=${poll.refresh} />
          </div>
          <${History} history=${data.history} />
        `}
      />
    </div>
  <//>`;
}

/** @param {{ name: string, found: Api.TaskReply, admin: boolean, onChange: () => void }} props */
function Head({ name, found, admin, onChange }) {
  const { decision } = found;
  const state = stateOf(found.state);
  const giveUp = async () => {
    await post(policyPath(name, "/expirations"), { task: decision.task });
    onChange();
  };
  return html`<header class="stack tight">
    <h2 class="task-id break"><${GivenText} text=${decision.task} /></h2>
    <div class="row">
      <span class="badge accent">${decision.route}</span>
      <span class="badge">${decision.reason}</span>
      <span class=${`badge ${state.tone}`}>${state.text}</span>
      <span class="muted small">decision ${number(decision.id)}, ${clock(found.at)}</span>
      ${admin && found.state === "open" &&
      html`<${ConfirmButton} text="Give up" about=${decision.task} question="Use the model’s answer?" onConfirm=${giveUp} />`}
    </div>
  </header>`;
}

/** @param {{ decision: Api.DecisionReply, explanation: string }} props */
function Why({ decision, explanation }) {
  const priceless = Object.values(typeof decision.price === "number" ? [decision.price] : decision.price).every((each) => each === 0);
  return html`<section class="card stack">
    <h2>Why ${decision.route}</h2>
    <p>${explanation}</p>
    <${DecisionBars} decision=${decision} />
    <ul class="legend">
      <li><span class="swatch estimate"></span> expected reward</li>
      <li><span class="swatch width"></span> width: uncertainty counts in favour of a decider</li>
      ${!priceless && html`<li><span class="swatch priced"></span> price × cost</li>`}
      <li><span class="swatch net"></span> net value; the largest decides</li>
    </ul>
    <div class="scroll" tabindex="0" role="region" aria-label="Numbers of the decision">
      <table class="data">
        <thead>
          <tr><th>Decider</th><th class="right">Expected reward</th><th class="right">Width</th><th class="right">Expected cost</th><th class="right">Price × cost</th><th class="right">Remains</th></tr>
        </thead>
        <tbody>
          ${indices(decision).map(
            (row) => html`<tr key=${row.decider} class=${row.decider === decision.route ? "strong" : ""}>
              <td>${row.decider}</td>
              <td class="right">${number(row.estimate)}</td>
              <td class="right">${number(row.width)}</td>
              <td class="right nowrap">${row.decider in decision.costs ? amounts(decision.costs[row.decider]) : "–"}</td>
              <td class="right">${row.decider in decision.costs ? number(row.priced) : "–"}</td>
              <td class="right">${number(row.net)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="small muted">
      Price then: ${amounts(decision.price)}. Probability of this route: ${percent(decision.propensity)}.
      ${" "}${REMARKS[decision.reason] ?? ""}
    </p>
  </section>`;
}

/** @type {Record<string, string>} */
const REMARKS = {
  "warm-up": "The first tasks are decided at random, to learn from.",
  forced: "The caller named who decides.",
  explored: "Decided at random, at the rate of the explore floor of the policy.",
  budget: "Not enough budget was free to ask.",
  unavailable: "No expert was on duty.",
  unsettled: "The cost of a review is not known yet, so nobody was asked.",
};

/** @param {{ found: Api.TaskReply }} props */
function Outcome({ found }) {
  const { rewards, cost, final, answer, seats } = found;
  return html`<section class="card stack">
    <h2>Outcome</h2>
    <dl class="facts">
      <dt>Answer used</dt>
      <dd>${final ?? "not decided yet"}</dd>
      ${answer !== null && html`<dt>Answer</dt><dd><${Answer} answer=${answer} /></dd>`}
      <dt>Rewards</dt>
      <dd>${Object.keys(rewards).length ? Object.entries(rewards).map(([who, each]) => `${who} ${number(each)}`).join(", ") : "not known"}</dd>
      <dt>Cost</dt>
      <dd>${cost === null ? "none booked" : amounts(cost)}</dd>
    </dl>
    ${seats?.length > 0 &&
    html`<div class="scroll" tabindex="0" role="region" aria-label="Reviewers">
      <table class="data">
        <thead><tr><th>Reviewer</th><th>State</th><th>Answer</th><th class="right">Cost</th></tr></thead>
        <tbody>
          ${seats.map(
            (seat) => html`<tr key=${seat.seat}>
              <td class="id">${seat.reviewer === null ? html`<span class="muted">nobody yet</span>` : html`<${GivenText} text=${seat.reviewer} />`}</td>
              <td>${seat.state}</td>
              <td class="break">${seat.answer === null ? "–" : html`<${Answer} answer=${seat.answer} />`}</td>
              <td class="right nowrap">${seat.cost === null ? "–" : amounts(seat.cost)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>`}
  </section>`;
}

/** @param {{ name: string, found: Api.TaskReply, admin: boolean, onChange: () => void }} props */
function Shown({ name, found, admin, onChange }) {
  const { payload, model_answer: modelAnswer } = found;
  const kept = (payload ?? null) !== null || (modelAnswer ?? null) !== null;
  const erase = async () => {
    await post(policyPath(name, "/erase"), { task: found.decision.task });
    onChange();
  };
  return html`<section class="card stack">
    <h2>Shown to the reviewer</h2>
    ${kept
      ? html`${(payload ?? null) !== null && html`<div class="payload-box" tabindex="0" role="region" aria-label="Payload"><${Payload} payload=${payload} kind="auto" /></div>`}
          ${(modelAnswer ?? null) !== null && html`<p>The model’s answer: <${Answer} answer=${modelAnswer} /></p>`}
          ${admin &&
          html`<div class="row">
            <${ConfirmButton} text="Erase" about="payload and the model’s answer" question="Erase both for good?" onConfirm=${erase} />
          </div>`}`
      : html`<p class="muted">Nothing is kept: the task came without a payload, or it was erased after its retention time.</p>`}
  </section>`;
}

/** @param {{ history: Api.LogLine[] }} props */
function History({ history }) {
  return html`<section class="card">
    <h2>History</h2>
    <ol class="history">
      ${history.map(
        (line) => html`<li key=${line.seq}>
          <details>
            <summary><span class="strong">${line.kind}</span> <span class="muted small">${clock(line.at)}, row ${number(line.seq)} of the log</span></summary>
            <div class="record" tabindex="0" role="region" aria-label=${`Record ${line.seq}`}><${PayloadText} text=${JSON.stringify(line.record, null, 2)} mono /></div>
          </details>
        </li>`,
      )}
    </ol>
  </section>`;
}
