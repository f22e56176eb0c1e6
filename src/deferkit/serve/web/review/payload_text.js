// Text of strangers, shown as it is: never as markup, invisible and direction-changing characters made visible.

import { html, useState } from "../dom.js";
import { number } from "../format.js";

const FIRST = 20_000;
const MORE = 200_000;
const MAX_BOXES = 1000;
// embeddings, overrides and isolates could reorder what stands around them; control characters show nothing
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]/g;

/**
 * Long text is shown in parts, so that a megabyte does not stop the page.
 * @param {{ text: string, mono?: boolean }} props
 */
export function PayloadText({ text, mono = false }) {
  const [shown, setShown] = useState(FIRST);
  const rest = text.length - shown;
  return html`<div class=${mono ? "payload-text mono" : "payload-text"} dir="auto">${marked(text.slice(0, shown))}</div>
    ${rest > 0 &&
    html`<p class="row small muted">
      ${number(shown)} of ${number(text.length)} characters
      <button type="button" class="button small" onClick=${() => setShown(shown + MORE)}>Show more</button>
    </p>`}`;
}

/**
 * Text with each hidden character replaced by its code in a box.
 * @param {string} given
 * @returns {import("../dom.js").Child}
 */
export function marked(given) {
  const text = given.replace(/\r\n/g, "\n");
  /** @type {import("../dom.js").Child[]} */
  const parts = [];
  let from = 0;
  let boxes = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (boxes === MAX_BOXES) break;
    boxes += 1;
    parts.push(text.slice(from, found.index), html`<span class="hidden-character">${codeOf(found[0])}</span>`);
    from = found.index + 1;
  }
  parts.push(text.slice(from).replace(HIDDEN, "\ufffd"));
  return parts;
}

/** @param {string} character */
function codeOf(character) {
  return `U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}
