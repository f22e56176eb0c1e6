// Coefficients with their errors, the clearest first: a bar that crosses the middle may be nothing.

import { html, useRef, useState } from "../dom.js";
import { number } from "../format.js";
import { GivenText } from "../console/given_text.js";
import { linear, useWidth } from "./scales.js";

const ROW = 26;
const FEW = 10;
const SIDE = 12;

/** @param {{ coefficients: Api.Coefficient[] }} props */
export function CoefficientPlot({ coefficients }) {
  const [all, setAll] = useState(false);
  const learned = coefficients.filter((each) => each.value !== 0); // the others were never seen: their errors say nothing
  const shown = all || !learned.length ? coefficients : learned.slice(0, FEW);
  const widest = Math.max(1e-12, ...(learned.length ? learned : shown).map((each) => Math.abs(each.value) + 2 * each.error));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Coefficients">
      <table class="data coefficients">
        <thead>
          <tr><th>Feature</th><th class="plot">Value, ± 2 standard errors</th><th class="right">Value</th><th class="right">Error</th></tr>
        </thead>
        <tbody>
          ${shown.map(
            (each) => html`<tr key=${each.feature}>
              <th scope="row" class="break"><${GivenText} text=${each.feature} /></th>
              <td class="plot"><${Whisker} coefficient=${each} widest=${widest} /></td>
              <td class="right">${number(each.value)}</td>
              <td class="right muted">${number(each.error)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${coefficients.length > learned.slice(0, FEW).length && learned.length > 0 &&
    html`<button type="button" class="button small quiet" onClick=${() => setAll(!all)}>
      ${all ? "Show fewer" : `Show all ${coefficients.length}`}
    </button>`}`;
}

/** @param {{ coefficient: Api.Coefficient, widest: number }} props */
function Whisker({ coefficient: { value, error }, widest }) {
  const holder = useRef(/** @type {HTMLElement | null} */ (null));
  const width = useWidth(holder);
  const scale = linear([-widest, widest], [SIDE, Math.max(SIDE + 1, width - SIDE)]);
  const at = (/** @type {number} */ each) => scale(Math.min(widest, Math.max(-widest, each)));
  const clear = Math.abs(value) > 2 * error;
  return html`<div ref=${holder}>
    <svg aria-hidden="true" width=${width} height=${ROW}>
      <line class="zero" x1=${at(0)} x2=${at(0)} y1="0" y2=${ROW} />
      <g class=${clear ? "clear" : ""}>
        <line class="whisker" x1=${at(value - 2 * error)} x2=${at(value + 2 * error)} y1=${ROW / 2} y2=${ROW / 2} />
        <circle class="dot" cx=${at(value)} cy=${ROW / 2} r="4" />
      </g>
    </svg>
  </div>`;
}
