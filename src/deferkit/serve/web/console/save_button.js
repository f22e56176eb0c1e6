// Saving what was edited: enabled when there is something to save, and says what became of it.

import { useAction } from "../action.js";
import { announce } from "../announce.js";
import { html, useEffect, useState } from "../dom.js";

/**
 * @param {object} props
 * @param {boolean} props.changed
 * @param {() => Promise<void>} props.onSave
 * @param {() => void} props.onUndo
 */
export function SaveButton({ changed, onSave, onUndo }) {
  const [saved, setSaved] = useState(false);
  useEffect(() => {
    if (changed) setSaved(false);
  }, [changed]);
  const { busy, trouble, run } = useAction(async () => {
    await onSave();
    setSaved(true);
    announce("Saved.");
  });
  return html`<div class="stack tight">
    <div class="row">
      <button type="button" class="button primary" disabled=${!changed || busy} onClick=${run}>Save</button>
      ${changed && html`<button type="button" class="button quiet" onClick=${onUndo}>Undo changes</button>`}
      ${saved && !changed && html`<span class="good-text">Saved</span>`}
    </div>
    ${trouble && html`<p class="notice bad break" role="alert">${trouble}</p>`}
  </div>`;
}
