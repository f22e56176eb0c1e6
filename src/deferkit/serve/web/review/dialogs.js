// Dialogs of the review page: declining a task, the list of keys.

import { useSubmit } from "../action.js";
import { html, useEffect, useRef, useState } from "../dom.js";
import { amount } from "../format.js";
import { KEYS } from "./keys.js";

/** @typedef {import("./desk.js").Desk} Desk */

/**
 * A modal dialog for as long as it is drawn; Esc closes it.
 * @param {{ title: string, onClose: () => void, children?: unknown }} props
 */
function Dialog({ title, onClose, children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return html`<dialog ref=${element} onClose=${onClose} aria-labelledby="dialog-title">
    <div class="stack"><h2 id="dialog-title">${title}</h2>${children}</div>
  </dialog>`;
}

/** @param {{ onClose: () => void }} props */
export function KeysDialog({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="facts keys">${KEYS.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>
    <p class="muted small">Shortcuts are off while you type.</p>
    <form method="dialog"><button class="button primary">Close</button></form>
  <//>`;
}

/** @param {{ desk: Desk, onClose: () => void }} props */
export function DeclineDialog({ desk, onClose }) {
  const [reason, setReason] = useState("");
  const [book, setBook] = useState(true);
  const { unit } = desk.settings;
  const cost = desk.proposedCost;

  const { busy, trouble, run } = useSubmit(async () => {
    await desk.decline(reason.trim(), book && cost !== null && cost > 0);
    onClose();
  });
  return html`<${Dialog} title="Decline this task" onClose=${onClose}>
    <form class="stack" onSubmit=${run}>
      <p class="muted">Somebody else gets it; it does not come back to you.</p>
      <div class="field">
        <label for="reason">Why?</label>
        <textarea id="reason" rows="3" maxlength="1000" required value=${reason} dir="auto"
          onInput=${(/** @type {any} */ event) => setReason(event.target.value)}></textarea>
      </div>
      ${unit && cost !== null && cost > 0 &&
      html`<label class="check">
        <input type="checkbox" checked=${book} onChange=${() => setBook(!book)} />
        <span>Book the time spent: ${amount(cost, unit)}</span>
      </label>`}
      ${trouble && html`<p class="notice bad" role="alert">${trouble}</p>`}
      <div class="row">
        <button class="button primary" disabled=${busy}>Decline</button>
        <button type="button" class="button" onClick=${onClose}>Keep the task</button>
      </div>
    </form>
  <//>`;
}
