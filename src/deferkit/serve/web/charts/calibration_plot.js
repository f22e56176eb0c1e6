// Predicted against observed: on the diagonal, estimates mean what they say.

import { html, useRef } from "../dom.js";
import { number } from "../format.js";
import { domain, linear, ticks, useWidth } from "./scales.js";

const LEFT = 44;
const BOTTOM = 38;
const LARGEST = 320;

/**
 * A dot for each bin with twice its standard error, as large as the bin has observations.
 * @param {object} props
 * @param {Api.CalibrationBin[]} props.bins
 * @param {string} props.label whose estimates these are
 */
export function CalibrationPlot({ bins, label }) {
  const holder = useRef(/** @type {HTMLElement | null} */ (null));
  const size = Math.min(LARGEST, useWidth(holder));
  const [low, high] = domain(bins.flatMap((bin) => [bin.predicted, bin.observed]));
  const x = linear([low, high], [LEFT, Math.max(LEFT + 1, size - 10)]);
  const y = linear([low, high], [Math.max(11, size - BOTTOM), 10]);
  const most = Math.max(1, ...bins.map((bin) => bin.count));
  const marks = ticks(low, high, 4);
  const clamp = (/** @type {number} */ value) => Math.min(high, Math.max(low, value));
  const summary = `Calibration of ${label}: ${bins
    .map((bin) => `predicted ${number(bin.predicted)}, observed ${number(bin.observed)}`)
    .join("; ")}`;
  return html`<div class="calibration" ref=${holder}>
    <svg role="img" aria-label=${summary} width=${size} height=${size}>
      ${marks.map(
        (tick) => html`<g key=${tick}>
          <line class="grid" x1=${LEFT} x2=${size - 10} y1=${y(tick)} y2=${y(tick)} />
          <text class="tick left" x=${LEFT - 6} y=${y(tick) + 4}>${number(tick)}</text>
          <text class="tick" x=${x(tick)} y=${size - BOTTOM + 16}>${number(tick)}</text>
        </g>`,
      )}
      <line class="diagonal" x1=${x(low)} y1=${y(low)} x2=${x(high)} y2=${y(high)} />
      ${bins.map(
        (bin) => html`<g key=${bin.predicted}>
          <line
            class="whisker"
            x1=${x(bin.predicted)}
            x2=${x(bin.predicted)}
            y1=${y(clamp(bin.observed - 2 * (bin.error ?? 0)))}
            y2=${y(clamp(bin.observed + 2 * (bin.error ?? 0)))}
          />
          <circle class="dot" cx=${x(bin.predicted)} cy=${y(bin.observed)} r=${3 + 4 * Math.sqrt(bin.count / most)} />
        </g>`,
      )}
      <text class="axis" x=${(LEFT + size) / 2} y=${size - 4}>predicted</text>
      <text class="axis" x=${-(size - BOTTOM) / 2} y="11" transform="rotate(-90)">observed</text>
    </svg>
  </div>`;
}
