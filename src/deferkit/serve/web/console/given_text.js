// Names and ids that callers chose: isolated from the text around them, hidden characters made visible.

import { html } from "../dom.js";
import { marked } from "../review/payload_text.js";

const LONGEST = 500;

/** @param {{ text: string }} props */
export function GivenText({ text }) {
  return html`<bdi class="break">${marked(text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text)}</bdi>`;
}

/**
 * An answer in one line: `label: spam, note: too good`.
 * @param {{ answer: unknown }} props
 */
export function Answer({ answer }) {
  const plain = (/** @type {unknown} */ value) => (typeof value === "string" ? value : JSON.stringify(value));
  if (typeof answer !== "object" || answer === null || Array.isArray(answer)) return html`<${GivenText} text=${plain(answer)} />`;
  const fields = Object.entries(answer).map(([name, value]) => `${name}: ${plain(value)}`);
  return html`<${GivenText} text=${fields.join(", ")} />`;
}
