// Lines over time.

import { html, useRef, useState } from "../dom.js";
import { clock, number } from "../format.js";
import { linear, ticks, useWidth } from "./scales.js";

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {(number | null)[]} values
 * @property {1 | 2 | 3 | 4 | 5} tone The number of a `--series-…` colour.
 * @property {boolean} [dashed]
 * @property {boolean} [filled] Fill down to 0.
 * @property {number[]} [error] Half the width of a band around the line.
 */
/** @typedef {(value: number) => number} Scale */

const HEIGHT = 220;
const [TOP, RIGHT, BOTTOM] = [8, 14, 24];
const CHARACTER = 7; // about the width of one, in pixels
const BETWEEN = 76; // pixels between two moments on the axis
const DAY_S = 86_400;
const STEPS_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY_S, 2 * DAY_S, 7 * DAY_S];

/**
 * Moments between two times that are round in local time, and the seconds between them.
 * @param {number} start
 * @param {number} end
 * @param {number} most How many there may be.
 * @returns {[number[], number]}
 */
export function moments(start, end, most) {
  const least = (end - start) / Math.max(1, most);
  const step = STEPS_S.find((each) => each >= least) ?? Math.ceil(least / DAY_S) * DAY_S;
  const offset = -60 * new Date(1000 * start).getTimezoneOffset();
  const first = Math.ceil((start + offset) / step) * step - offset;
  return [Array.from({ length: Math.floor((end - first) / step) + 1 }, (_, place) => first + place * step), step];
}

/**
 * A moment on the axis: the finer the axis, the finer the time.
 * @param {number} at
 * @param {number} step
 */
function written(at, step) {
  const date = new Date(1000 * at);
  if (step >= DAY_S) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const time = date.toLocaleTimeString("en-GB");
  return step < 60 ? time : time.slice(0, 5);
}

/**
 * The path through points; where one is missing, it begins anew.
 * @param {(number | null)[]} values
 * @param {number[]} across
 * @param {Scale} y
 */
function path(values, across, y) {
  let pen = "M";
  let found = "";
  values.forEach((value, place) => {
    if (value !== null) found += `${pen}${across[place]?.toFixed(1)},${y(value).toFixed(1)}`;
    pen = value === null ? "M" : "L";
  });
  return found;
}

/**
 * The outline between two edges.
 * @param {number[]} upper
 * @param {number[]} lower
 * @param {number[]} across
 * @param {Scale} y
 */
function outline(upper, lower, across, y) {
  return `${path(upper, across, y)}${path(lower.toReversed(), across.toReversed(), y).replace("M", "L")}Z`;
}

/** @param {{ line: Line, across: number[], y: Scale, shown: number | null }} props */
function Drawn({ line: { values, tone, dashed, filled, error }, across, y, shown }) {
  const known = values.map((value) => value ?? 0);
  const edge = (/** @type {number} */ sign) => known.map((value, place) => value + sign * (error?.[place] ?? 0));
  const value = shown === null ? null : values[shown];
  return html`<g class=${`series-${tone}`}>
    ${error && html`<path class="shade" d=${outline(edge(1), edge(-1), across, y)} />`}
    ${filled && html`<path class="shade" d=${outline(known, known.map(() => 0), across, y)} />`}
    <path class=${dashed ? "line dashed" : "line"} d=${path(values, across, y)} />
    ${shown !== null && value !== null && value !== undefined && html`<circle class="at" cx=${across[shown]} cy=${y(value)} r="4" />`}
  </g>`;
}

/**
 * Lines over time with their values above them: those under the pointer, else the latest.
 * @param {object} props
 * @param {string} props.summary What the drawing shows, for those who do not see it.
 * @param {number[]} props.x Seconds since 1970.
 * @param {Line[]} props.lines
 */
export function LineChart({ summary, x, lines }) {
  const holder = useRef(/** @type {HTMLElement | null} */ (null));
  const width = useWidth(holder);
  const [place, setPlace] = useState(/** @type {number | null} */ (null));
  const under = place === null || place >= x.length ? null : place;
  const shown = under ?? x.length - 1;

  const all = lines.flatMap(({ values, error }) =>
    values.flatMap((value, at) => (value === null ? [] : [value - (error?.[at] ?? 0), value + (error?.[at] ?? 0)])),
  );
  const low = Math.min(0, ...all);
  const high = Math.max(0, ...all) * 1.06 || (low < 0 ? 0 : 1);
  const marks = ticks(low, high, 5);
  const left = 10 + CHARACTER * Math.max(...marks.map((mark) => number(mark).length));
  const [start, end] = [x[0] ?? 0, x.at(-1) ?? 1];
  const across = x.map(linear([start, end], [left, Math.max(left + 1, width - RIGHT)]));
  const y = linear([low, high], [HEIGHT - BOTTOM, TOP]);
  const at = linear([start, end], [left, Math.max(left + 1, width - RIGHT)]);
  const [times, step] = moments(start, end, (width - left - RIGHT) / BETWEEN);
  /** @param {PointerEvent} event */
  const point = (event) => {
    const found = across.map((each) => Math.abs(each - event.offsetX));
    setPlace(found.indexOf(Math.min(...found)));
  };
  return html`<div class="line-chart">
    <ul class="legend">
      ${lines.map(
        ({ label, tone, dashed, values }) => html`<li key=${label}>
          <span class=${`swatch series-${tone}${dashed ? " dashed" : ""}`}></span>
          ${label} <b class="number">${number(values[shown])}</b>
        </li>`,
      )}
      <li class="moment">${x.length ? clock(x[shown]) : ""}</li>
    </ul>
    <div class="drawing" ref=${holder}>
      <svg role="img" aria-label=${summary} width=${width} height=${HEIGHT} onPointerMove=${point} onPointerLeave=${() => setPlace(null)}>
        ${marks.map(
          (mark) => html`<g key=${mark}>
            <line class="grid" x1=${left} x2=${width - RIGHT} y1=${y(mark)} y2=${y(mark)} />
            <text class="tick left" x=${left - 6} y=${y(mark) + 4}>${number(mark)}</text>
          </g>`,
        )}
        ${times.map((time) => html`<text key=${time} class="tick" x=${Math.max(28, Math.min(at(time), width - 28))} y=${HEIGHT - 6}>${written(time, step)}</text>`)}
        ${under !== null && html`<line class="pointer" x1=${across[under]} x2=${across[under]} y1=${TOP} y2=${HEIGHT - BOTTOM} />`}
        ${lines.map((line) => html`<${Drawn} key=${line.label} line=${line} across=${across} y=${y} shown=${under} />`)}
      </svg>
    </div>
  </div>`;
}
