// Counts of parts of a whole, as bars, the largest first.

import { html } from "../dom.js";
import { number, percent } from "../format.js";

/** @param {{ title: string, counts: Record<string, number> }} props */
export function ShareBars({ title, counts }) {
  const all = Object.values(counts).reduce((sum, each) => sum + each, 0);
  const rows = Object.entries(counts).filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]);
  return html`<div class="share-bars">
    <h3>${title}</h3>
    <ul>
      ${rows.map(
        ([name, count]) => html`<li key=${name}>
          <span class="break">${name}</span>
          <span class="track" aria-hidden="true"><span style=${{ width: `${(100 * count) / all}%` }}></span></span>
          <span class="number right">${number(count)} <span class="muted">${percent(count / all)}</span></span>
        </li>`,
      )}
    </ul>
  </div>`;
}
