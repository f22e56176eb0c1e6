// The review queue: what waits, for how long, who holds it; giving a task up, taking a claim back.

import { policyPath, post, query } from "../api.js";
import { html, useState } from "../dom.js";
import { ago, clock, duration, number } from "../format.js";
import { useReply } from "../poll.js";
import { may } from "../session.js";
import { ConfirmButton } from "./confirm_button.js";
import { GivenText } from "./given_text.js";
import { Empty, Loaded } from "./loaded.js";
import { Pager, usePages } from "./pager.js";
import { PolicyFrame, pageOf, taskPage } from "./policy_frame.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 3000;
const PAGE = 50;
/** @type {[string, string][]} */
const FILTERS = [
  ["all", "All"],
  ["waiting", "Waiting"],
  ["claimed", "Claimed"],
];

/** @typedef {import("../session.js").Session} Session */

/** @param {{ params: { name: string }, session: Session }} props */
export default function Queue({ params: { name }, session }) {
  const [state, setState] = useState("all");
  const pages = usePages([name, state]);
  const poll = /** @type {Polled<Api.QueuePage>} */ (
    useReply(policyPath(name, `/reviews${query({ state, after: pages.at, limit: PAGE })}`), EVERY_MS)
  );
  return html`<${PolicyFrame} name=${name} tab="/queue" session=${session}>
    <div class="row" role="group" aria-label="Show">
      ${FILTERS.map(
        ([value, text]) => html`<button
          type="button"
          class=${`button small${value === state ? " primary" : ""}`}
          aria-pressed=${value === state}
          onClick=${() => setState(value)}
        >
          ${text}
        </button>`,
      )}
    </div>
    <${Loaded}
      poll=${poll}
      draw=${(/** @type {Api.QueuePage} */ data) =>
        data.seats.length || pages.at
          ? html`<${Seats} name=${name} seats=${data.seats} admin=${may(session, "admin")} onChange=${poll.refresh} />
              <${Pager} pages=${pages} next=${data.next} />`
          : html`<${Empty} title=${state === "all" ? "No tasks are waiting" : `No task is ${state}`}>
              <p class="muted">Tasks appear here when the policy asks a person.</p>
              <a class="button" href=${pageOf(name, "/decisions")}>See all decisions</a>
            <//>`}
    />
  <//>`;
}

/** @param {{ name: string, seats: Api.QueueLine[], admin: boolean, onChange: () => void }} props */
function Seats({ name, seats, admin, onChange }) {
  return html`<div class="card flush scroll" tabindex="0" role="region" aria-label="Waiting tasks">
    <table class="data">
      <thead>
        <tr>
          <th>Task</th><th>State</th><th class="right optional">Priority</th><th>Age</th><th class="optional">Deadline</th><th class="optional">Expert</th>
          ${admin && html`<th><span class="visually-hidden">Actions</span></th>`}
        </tr>
      </thead>
      <tbody>
        ${seats.map(
          (seat) => html`<tr key=${`${seat.task} ${seat.seat}`}>
            <td class="id">
              <a href=${taskPage(name, seat.task)}><${GivenText} text=${seat.task} /></a>
              ${seat.seat > 0 && html` <span class="small muted">seat ${seat.seat + 1}</span>`}
              ${seat.declines > 0 && html` <span class="badge warn">declined ${number(seat.declines)}×</span>`}
            </td>
            <td><${SeatState} seat=${seat} /></td>
            <td class="right optional">${number(seat.priority)}</td>
            <td class="nowrap" title=${clock(seat.created)}>${briefly(Date.now() / 1000 - seat.created)}</td>
            <td class="optional">${seat.deadline === null ? "none" : ago(seat.deadline)}</td>
            <td class="name optional">${seat.expert}</td>
            ${admin && html`<td class="actions"><${Actions} name=${name} seat=${seat} onChange=${onChange} /></td>`}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * A time span by its largest unit: `3 min`.
 * @param {number} seconds
 */
function briefly(seconds) {
  return duration(seconds).split(" ").slice(0, 2).join(" ");
}

/** @param {{ seat: Api.QueueLine }} props */
function SeatState({ seat }) {
  if (seat.state !== "claimed") return html`<span class="badge warn">${seat.state}</span>`;
  const left = seat.lease_until === null ? "" : `until ${clock(seat.lease_until)}`;
  return html`<span class="badge accent">claimed</span> <${GivenText} text=${seat.reviewer} />
    <span class="small muted"> ${left}</span>`;
}

/** @param {{ name: string, seat: Api.QueueLine, onChange: () => void }} props */
function Actions({ name, seat, onChange }) {
  const giveUp = async () => {
    await post(policyPath(name, "/expirations"), { task: seat.task });
    onChange();
  };
  const reassign = async () => {
    await post(policyPath(name, "/reviews/reassign"), { task: seat.task, seat: seat.seat });
    onChange();
  };
  return html`<div class="row">
    ${seat.state === "claimed" &&
    html`<${ConfirmButton}
      text="Reassign"
      about=${seat.task}
      question=${`End the claim of ${seat.reviewer ?? "its reviewer"}?`}
      onConfirm=${reassign}
    />`}
    <${ConfirmButton} text="Give up" about=${seat.task} question="Use the model’s answer?" onConfirm=${giveUp} />
  </div>`;
}
