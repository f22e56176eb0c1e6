// What an answer costs: proposed by the timer, corrected by the reviewer.

import { html, useState } from "../dom.js";
import { amount, duration } from "../format.js";

/** @typedef {import("./desk.js").Desk} Desk */

/** @param {{ desk: Desk }} props */
export function Cost({ desk }) {
  const { unit, review } = desk.settings;
  const [editing, setEditing] = useState(false);
  if (!unit) return null;
  const timer = review.timer ?? null;
  const entered = (/** @type {any} */ event) => desk.setCost(event.target.value === "" ? null : Math.max(0, event.target.valueAsNumber));
  const reset = () => {
    desk.setCost(null);
    setEditing(false);
  };
  if (timer && !editing && desk.cost === null) {
    return html`<p class="row small muted cost">
      <span class="number">${duration(desk.timer.seconds)} active${!desk.timer.active && ", paused"} = ${amount(desk.proposedCost, unit)}</span>
      <button type="button" class="link small" onClick=${() => setEditing(true)}>Correct</button>
    </p>`;
  }
  return html`<div class="row small cost">
    <label for="cost">Cost in ${unit}</label>
    <input id="cost" type="number" min="0" step="any" inputmode="decimal" onInput=${entered}
      value=${desk.cost ?? ""} placeholder=${timer ? String(desk.proposedCost) : "if known"} />
    ${timer && html`<button type="button" class="link small" onClick=${reset}>Take the timer's</button>`}
  </div>`;
}
