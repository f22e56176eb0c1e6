// A number with its name and a remark.

import { html } from "../dom.js";

/** @param {{ label: string, value: string, note?: string }} props */
export function Stat({ label, value, note }) {
  return html`<div class="stat">
    <dt>${label}</dt>
    <dd><span class="stat-value number">${value}</span>${note && html` <span class="small muted">${note}</span>`}</dd>
  </div>`;
}
