// Paging through a list whose next page is named by the page before.

import { html, useEffect, useState } from "../dom.js";

/**
 * @typedef {object} Pages
 * @property {string | null} at Where the page begins; null: the first one.
 * @property {number} number Counted from 1.
 * @property {(next: string) => void} forward
 * @property {() => void} back
 */

/**
 * The page that is shown; the first one again when an input changes.
 * @param {readonly unknown[]} inputs
 * @returns {Pages}
 */
export function usePages(inputs) {
  const [starts, setStarts] = useState(/** @type {string[]} */ ([]));
  useEffect(() => setStarts([]), inputs);
  return {
    at: starts.at(-1) ?? null,
    number: starts.length + 1,
    forward: (next) => setStarts((before) => [...before, next]),
    back: () => setStarts((before) => before.slice(0, -1)),
  };
}

/**
 * @param {object} props
 * @param {Pages} props.pages
 * @param {string | number | null} props.next Where the following page begins; null: there is none.
 * @param {string} [props.back] What the page before is called.
 * @param {string} [props.forward]
 */
export function Pager({ pages, next, back = "Previous", forward = "Next" }) {
  if (pages.number === 1 && next === null) return null;
  return html`<nav class="row" aria-label="Pages of the list">
    <button type="button" class="button small" disabled=${pages.number === 1} onClick=${pages.back}>${back}</button>
    <span class="muted small">Page ${pages.number}</span>
    <button
      type="button"
      class="button small"
      disabled=${next === null}
      onClick=${() => next !== null && pages.forward(String(next))}
    >
      ${forward}
    </button>
  </nav>`;
}
