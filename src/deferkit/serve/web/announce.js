// One live region for the whole page: what changes without a click is read out.

import { html, useEffect, useState } from "./dom.js";

const SAID = "deferkit:announce";

/**
 * Have a screen reader say something, once it has nothing else to say.
 * @param {string} text
 */
export function announce(text) {
  dispatchEvent(new CustomEvent(SAID, { detail: text }));
}

/** The live region; the top of the page has it once. */
export function LiveRegion() {
  const [text, setText] = useState("");
  useEffect(() => {
    /** @param {Event} event */
    const said = (event) => setText(/** @type {CustomEvent<string>} */ (event).detail);
    addEventListener(SAID, said);
    return () => removeEventListener(SAID, said);
  }, []);
  return html`<div class="visually-hidden" role="status" aria-live="polite">${text}</div>`;
}
