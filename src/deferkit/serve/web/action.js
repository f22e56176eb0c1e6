// Doing something once it is asked for: whether it runs, and why it failed.

import { messageOf } from "./api.js";
import { useState } from "./dom.js";

/**
 * @template {unknown[]} Given
 * @typedef {object} Action
 * @property {boolean} busy It runs.
 * @property {string} trouble Why the latest run failed; "" if it did not.
 * @property {(...given: Given) => Promise<void>} run
 */

/**
 * @template {unknown[]} Given
 * @param {(...given: Given) => Promise<unknown>} act
 * @returns {Action<Given>}
 */
export function useAction(act) {
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  /** @param {Given} given */
  const run = async (...given) => {
    setBusy(true);
    setTrouble("");
    try {
      await act(...given);
    } catch (error) {
      setTrouble(messageOf(error));
    } finally {
      setBusy(false);
    }
  };
  return { busy, trouble, run };
}

/**
 * The same for a form, whose fields the browser must not send itself.
 * @param {(form: HTMLFormElement) => Promise<unknown>} act
 * @returns {Action<[Event]>}
 */
export function useSubmit(act) {
  return useAction((/** @type {Event} */ event) => {
    event.preventDefault();
    return act(/** @type {HTMLFormElement} */ (event.target));
  });
}
