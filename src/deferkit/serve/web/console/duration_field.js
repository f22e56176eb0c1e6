// A time span as people enter it: a number and its unit.

import { html, useState } from "../dom.js";

/** @type {[string, number][]} */
const UNITS = [
  ["days", 86_400],
  ["hours", 3600],
  ["minutes", 60],
  ["seconds", 1],
];

/**
 * The largest unit that a span is a whole or half number of.
 * @param {number} seconds
 */
function unitOf(seconds) {
  return UNITS.find(([, length]) => (2 * seconds) % length === 0 && seconds >= length)?.[1] ?? 1;
}

/**
 * @param {object} props
 * @param {string} props.id
 * @param {string} props.label
 * @param {string} props.help
 * @param {number | null} props.value Seconds; null: none.
 * @param {string} [props.none] What it means to have none; without it, a value is needed.
 * @param {(seconds: number | null) => void} props.onChange
 */
export function DurationField({ id, label, help, value, none, onChange }) {
  const [unit, setUnit] = useState(() => (value === null ? 3600 : unitOf(value)));
  const given = value === null ? "" : String(Number((value / unit).toPrecision(6)));
  const change = (/** @type {Event} */ event) => {
    const text = /** @type {HTMLInputElement} */ (event.target).value.trim();
    const entered = Number(text) * unit;
    if (text === "" && none !== undefined) onChange(null);
    else if (Number.isFinite(entered) && entered > 0) onChange(entered);
  };
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <div class="duration">
      <input
        id=${id}
        type="number"
        min="0"
        step="any"
        value=${given}
        placeholder=${none ?? ""}
        required=${none === undefined}
        aria-describedby=${`${id}-help`}
        onChange=${change}
      />
      <select
        aria-label=${`Unit of: ${label}`}
        value=${String(unit)}
        onChange=${(/** @type {Event} */ event) => {
          const next = Number(/** @type {HTMLSelectElement} */ (event.target).value);
          setUnit(next);
          if (value !== null) onChange((value / unit) * next);
        }}
      >
        ${UNITS.map(([name, length]) => html`<option value=${String(length)} selected=${length === unit}>${name}</option>`)}
      </select>
    </div>
    <p class="help" id=${`${id}-help`}>${help}</p>
  </div>`;
}
