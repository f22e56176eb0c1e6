// Points with error bars over a number: what each budget would have brought.

import { html, useRef } from "../dom.js";
import { number } from "../format.js";
import { domain, linear, ticks, useWidth } from "./scales.js";

/**
 * @typedef {object} Point
 * @property {number} x
 * @property {number} y
 * @property {number} error half the length of the bar
 * @property {string} label
 * @property {boolean} marked drawn to stand out
 */

const HEIGHT = 280;
const LEFT = 66;
const BOTTOM = 40;
const NEAR = 50; // pixels between labels that would overlap

/**
 * The points that have room for a label, the marked ones first; a table has the others.
 * @param {Point[]} points
 * @param {(value: number) => number} x
 */
function withRoom(points, x) {
  /** @type {Point[]} */
  const found = [];
  for (const point of points.toSorted((a, b) => Number(b.marked) - Number(a.marked)))
    if (found.every((other) => Math.abs(x(other.x) - x(point.x)) >= NEAR)) found.push(point);
  return found;
}

/**
 * @param {object} props
 * @param {Point[]} props.points by x
 * @param {string} props.xLabel
 * @param {string} props.yLabel
 * @param {string} props.summary what the drawing shows, for those who do not see it
 */
export function ErrorBars({ points, xLabel, yLabel, summary }) {
  const holder = useRef(/** @type {HTMLElement | null} */ (null));
  const width = useWidth(holder);
  const across = domain([0, ...points.map((point) => point.x)], 0.04);
  const up = domain(points.flatMap((point) => [point.y - point.error, point.y + point.error]), 0.12);
  const x = linear([0, across[1]], [LEFT, Math.max(LEFT + 1, width - 16)]);
  const y = linear(up, [HEIGHT - BOTTOM, 12]);
  const path = points.map((point, place) => `${place ? "L" : "M"}${x(point.x)},${y(point.y)}`).join("");
  return html`<div class="error-bars" ref=${holder}>
    <svg role="img" aria-label=${summary} width=${width} height=${HEIGHT}>
      ${ticks(up[0], up[1], 5).map(
        (tick) => html`<g key=${tick}>
          <line class="grid" x1=${LEFT} x2=${width - 16} y1=${y(tick)} y2=${y(tick)} />
          <text class="tick left" x=${LEFT - 8} y=${y(tick) + 4}>${number(tick)}</text>
        </g>`,
      )}
      ${ticks(0, across[1], width / 110).map(
        (tick) => html`<text key=${tick} class="tick" x=${x(tick)} y=${HEIGHT - BOTTOM + 17}>${number(tick)}</text>`,
      )}
      <path class="curve" d=${path} />
      ${points.map(
        (point) => html`<g key=${point.label} class=${point.marked ? "marked" : ""}>
          <line class="whisker" x1=${x(point.x)} x2=${x(point.x)} y1=${y(point.y - point.error)} y2=${y(point.y + point.error)} />
          <circle class="dot" cx=${x(point.x)} cy=${y(point.y)} r="5" />
        </g>`,
      )}
      ${withRoom(points, x).map(
        (point) => html`<text
          key=${point.label}
          class=${point.marked ? "point-label marked" : "point-label"}
          x=${x(point.x)}
          y=${y(point.y + point.error) - 9}
        >
          ${point.label}
        </text>`,
      )}
      <text class="axis" x=${(LEFT + width) / 2} y=${HEIGHT - 4}>${xLabel}</text>
      <text class="axis" x=${-(HEIGHT - BOTTOM) / 2} y="12" transform="rotate(-90)">${yLabel}</text>
    </svg>
  </div>`;
}
