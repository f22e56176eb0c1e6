// Lines over time, drawn by uPlot. Colours come from the style sheet and follow its theme.

import { html, useEffect, useRef, useState } from "../dom.js";
import { clock, number } from "../format.js";
import { colour, onThemeChange } from "../theme.js";
import { loadUPlot } from "../uplot.js";
import { useWidth } from "./scales.js";

/** @typedef {import("../vendor/uPlot.js")} Chart */
/** @typedef {import("../vendor/uPlot.js").Options} Options */
/** @typedef {import("../vendor/uPlot.js").AlignedData} AlignedData */
/**
 * @typedef {object} Line
 * @property {string} label
 * @property {(number | null)[]} values
 * @property {1 | 2 | 3 | 4 | 5} tone The number of a `--series-…` colour.
 * @property {boolean} [dashed]
 * @property {boolean} [filled] Fill down to 0.
 * @property {number[]} [error] Half the width of a band around the line.
 */

const DAY_S = 86_400;
const SHADE = 0.16;

/**
 * A moment on the axis: the finer the axis, the finer the time.
 * @param {number} at
 * @param {number} step Seconds between two marks.
 */
function moment(at, step) {
  const date = new Date(at * 1000);
  if (step >= DAY_S) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  /** @type {"2-digit" | undefined} */
  const second = step < 60 ? "2-digit" : undefined;
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second });
}

/**
 * The columns of uPlot: times, each line, and the edges of its band.
 * @param {number[]} x
 * @param {Line[]} lines
 */
function columns(x, lines) {
  /** @type {(number | null)[][]} */
  const found = [x];
  for (const { values, error } of lines) {
    found.push(values);
    if (!error) continue;
    for (const sign of [1, -1])
      found.push(values.map((value, place) => (value === null ? null : value + sign * (error[place] ?? 0))));
  }
  return /** @type {AlignedData} */ (/** @type {unknown} */ (found));
}

/** @param {string} found A colour as `rgb(…)`. */
function shade(found) {
  return found.replace(/^rgb\(([^)]*)\)$/, `rgba($1, ${SHADE})`);
}

/**
 * The settings of uPlot for these lines, with the colours of now.
 * @param {HTMLElement} holder
 * @param {Line[]} lines
 * @param {number} height
 * @param {(value: number) => string} format
 * @param {(place: number | null) => void} onPoint
 * @returns {Options}
 */
function options(holder, lines, height, format, onPoint) {
  /** @type {Options["series"]} */
  const series = [{}];
  /** @type {NonNullable<Options["bands"]>} */
  const bands = [];
  const hidden = { width: 0, points: { show: false } };
  for (const { label, tone, dashed, filled, error } of lines) {
    const stroke = colour(`--series-${tone}`);
    series.push({
      label,
      stroke,
      width: 2,
      points: { show: false },
      ...(dashed ? { dash: [6, 5] } : {}),
      ...(filled ? { fill: shade(stroke) } : {}),
    });
    if (!error) continue;
    bands.push({ series: [series.length, series.length + 1], fill: shade(stroke) });
    series.push(hidden, hidden);
  }
  const axis = { stroke: colour("--muted"), font: `12px ${getComputedStyle(holder).fontFamily}`, ticks: { show: false } };
  return {
    width: Math.max(1, holder.clientWidth),
    height,
    series,
    bands,
    legend: { show: false },
    padding: [8, 32, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, 0) * 1.06 || ((low ?? 0) < 0 ? 0 : 1)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 28,
        space: 70,
        values: (_, splits, __, ___, step) => splits.map((at) => moment(at, step)),
      },
      {
        ...axis,
        grid: { stroke: colour("--grid"), width: 1 },
        space: 36,
        size: (_, values) => Math.max(34, ...(values ?? []).map((text) => 12 + 7 * text.length)),
        values: (_, splits) => splits.map(format),
      },
    ],
    hooks: { setCursor: [(chart) => onPoint(chart.cursor.idx ?? null)] },
  };
}

/**
 * Lines over time with their values above them: those under the pointer, else the latest.
 * @param {object} props
 * @param {string} props.summary What the drawing shows, for those who do not see it.
 * @param {number[]} props.x Seconds since 1970.
 * @param {Line[]} props.lines
 * @param {(value: number) => string} [props.format]
 * @param {number} [props.height]
 */
export function LineChart({ summary, x, lines, format = number, height = 220 }) {
  const holder = useRef(/** @type {HTMLElement | null} */ (null));
  const chart = useRef(/** @type {Chart | null} */ (null));
  const [place, setPlace] = useState(/** @type {number | null} */ (null));
  const [theme, setTheme] = useState(0);
  const width = useWidth(holder);
  const latest = useRef({ x, lines });
  latest.current = { x, lines };
  const shape = JSON.stringify(lines.map((line) => ({ ...line, values: 0, error: Boolean(line.error) })));

  useEffect(() => onThemeChange(() => setTheme((before) => before + 1)), []);
  useEffect(() => {
    let gone = false;
    void loadUPlot().then((UPlot) => {
      const element = holder.current;
      if (gone || !element) return;
      const { x, lines } = latest.current;
      chart.current = new UPlot(options(element, lines, height, format, setPlace), columns(x, lines), element);
    });
    return () => {
      gone = true;
      chart.current?.destroy();
      chart.current = null;
    };
  }, [shape, height, theme]);
  useEffect(() => chart.current?.setData(columns(x, lines)), [x, lines]);
  useEffect(() => {
    if (width) chart.current?.setSize({ width, height });
  }, [width, height]);

  const shown = place === null || place >= x.length ? x.length - 1 : place;
  return html`<div class="line-chart">
    <ul class="legend">
      ${lines.map(
        ({ label, tone, dashed, values }) => html`<li key=${label}>
          <span class=${`swatch series-${tone}${dashed ? " dashed" : ""}`}></span>
          ${label} <b class="number">${values[shown] === null || values[shown] === undefined ? "–" : format(values[shown])}</b>
        </li>`,
      )}
      <li class="moment">${x.length ? clock(x[shown]) : ""}</li>
    </ul>
    <div class="drawing" role="img" aria-label=${summary} ref=${holder}></div>
  </div>`;
}
