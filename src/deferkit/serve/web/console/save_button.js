// Saving what was edited: enabled when there is something to save, and says what became of it.

import { announce } from "../announce.js";
import { messageOf } from "../api.js";
import { html, useEffect, useState } from "../dom.js";

/**
 * @param {object} props
 * @param {boolean} props.changed
 * @param {() => Promise<void>} props.onSave
 * @param {() => void} props.onUndo
 */
export function SaveButton({ changed, onSave, onUndo }) {
  const [busy, setBusy] = useState(false);
  const [saved, setSaved] = useState(false);
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    if (changed) setSaved(false);
  }, [changed]);
  const save = async () => {
    setBusy(true);
    setTrouble("");
    try {
      await onSave();
      setSaved(true);
      announce("Saved.");
    } catch (error) {
      setTrouble(messageOf(error));
    } finally {
      setBusy(false);
    }
  };
  return html`<div class="stack tight">
    <div class="row">
      <button type="button" class="button primary" disabled=${!changed || busy} onClick=${save}>Save</button>
      ${changed && html`<button type="button" class="button quiet" onClick=${onUndo}>Undo changes</button>`}
      ${saved && !changed && html`<span class="good-text">Saved</span>`}
    </div>
    ${trouble && html`<p class="notice bad break" role="alert">${trouble}</p>`}
  </div>`;
}
