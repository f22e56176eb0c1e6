// A button that asks once more before it does what cannot be undone, and says what went wrong.

import { useAction } from "../action.js";
import { announce } from "../announce.js";
import { html, useEffect, useRef, useState } from "../dom.js";

/**
 * @param {object} props
 * @param {string} props.text
 * @param {string} props.question What is about to happen, as a question.
 * @param {string} props.about What it is about: read out with the text.
 * @param {() => Promise<unknown>} props.onConfirm
 */
export function ConfirmButton({ text, question, about, onConfirm }) {
  const [asked, setAsked] = useState(false);
  const button = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (asked) button.current?.focus();
  }, [asked]);
  const { busy, trouble, run } = useAction(async () => {
    await onConfirm();
    setAsked(false);
    announce(`${text}: done.`);
  });
  if (!asked)
    return html`<button
      type="button"
      class="button small"
      aria-label=${`${text}: ${about}`}
      onClick=${() => setAsked(true)}
    >
      ${text}
    </button>`;
  return html`<span class="confirm" role="group" aria-label=${question}>
    <span class="small">${trouble ? html`<span class="bad-text" role="alert">${trouble}</span>` : question}</span>
    <button type="button" class="button small danger" disabled=${busy} onClick=${run} ref=${button}>${text}</button>
    <button type="button" class="button small quiet" onClick=${() => setAsked(false)}>Cancel</button>
  </span>`;
}
