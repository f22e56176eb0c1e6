// The answers given last: on their way, arrived, or refused, and what can still be done about each.

import { classes, html } from "../dom.js";
import { modelAnswerText } from "./answers.js";

/** @typedef {import("./desk.js").Desk} Desk */

/**
 * The entry that the key for undo is about: the latest that can be opened again.
 * @param {Desk} desk
 */
export function undoable(desk) {
  return desk.outbox.list.find(
    ({ call, state, attempts }) => call !== "effort" && (state === "sent" || (state === "waiting" && attempts === 0)),
  );
}

/** @param {{ desk: Desk }} props */
export function AnswerList({ desk }) {
  const entries = desk.outbox.list;
  if (!entries.length) return null;
  const last = undoable(desk)?.id;
  return html`<section class="card answers" aria-labelledby="answers-title">
    <h2 id="answers-title">Your last answers</h2>
    <ul class="stack tight">
      ${entries.slice(0, 8).map((entry) => html`<${Answer} key=${entry.id} desk=${desk} entry=${entry} keyed=${entry.id === last} />`)}
    </ul>
  </section>`;
}

/** @param {{ desk: Desk, entry: Review.Entry, keyed: boolean }} props */
function Answer({ desk, entry, keyed }) {
  const { id, state, call } = entry;
  const reopen = () => void desk.reopen(id);
  const refused = state === "conflict" || state === "refused";
  const model = modelAnswerText(desk.settings.review.form, entry.modelAnswer);
  return html`<li class=${classes("answer", refused && "notice warn")}>
    <div class="row spread">
      <span class="break"><span class="strong" dir="auto">${entry.text}</span> <span class="muted small">${stateText(entry)}</span></span>
      <span class="row">
        ${call !== "effort" && state === "waiting" && !entry.attempts && html`<${Action} text="Undo" keyed=${keyed} onClick=${reopen} />`}
        ${call !== "effort" && state === "sent" && html`<${Action} text="Correct" keyed=${keyed} onClick=${reopen} />`}
      </span>
    </div>
    ${model && html`<p class="small muted">The model answered: <span dir="auto">${model}</span></p>`}
    ${refused &&
    html`<p class="small">${entry.detail}</p>
      <div class="row">
        ${state === "conflict" && call === "complete" && entry.body.cost !== undefined &&
        html`<${Action} text="Book the effort" onClick=${() => desk.bookEffortOf(entry)} />`}
        ${state === "refused" && call !== "effort" && html`<${Action} text="Open it again" onClick=${reopen} />`}
        <${Action} text="Discard" onClick=${() => desk.outbox.remove(id)} />
      </div>`}
  </li>`;
}

/** @param {{ text: string, keyed?: boolean, onClick: () => void }} props */
function Action({ text, keyed = false, onClick }) {
  return html`<button type="button" class="button small" onClick=${onClick} aria-keyshortcuts=${keyed ? "U" : null}>
    ${text}${keyed && html`<kbd aria-hidden="true">U</kbd>`}
  </button>`;
}

/** @param {Review.Entry} entry */
function stateText({ state, call, attempts, sendAt, body }) {
  if (state === "waiting" && attempts === 0) return `sent in ${Math.max(0, Math.ceil((sendAt - Date.now()) / 1000))} s`;
  if (state === "waiting") return "kept, waits for the connection";
  if (state === "sending") return "sending …";
  if (state === "conflict") return `too late: ${body.task}`;
  if (state === "refused") return `not taken: ${body.task}`;
  return { complete: "✓ sent", correct: "✓ corrected", effort: "✓ effort booked" }[call];
}
