// Keys of the review page. They are off while somebody types and while a dialog is open.

import { useLayoutEffect, useRef } from "../dom.js";

/** What each key does, as `?` lists it. */
export const KEYS = [
  ["1 – 9", "choose an option; a single question is answered by it"],
  ["Enter", "send the answer (in a text field: Ctrl + Enter)"],
  ["Esc", "leave a text field; clear the answer (U restores it)"],
  ["U", "undo: restore a cleared answer, take the last one back, or correct it"],
  ["D", "decline the task"],
  ["G", "show or hide the guidelines"],
  ["?", "this list"],
];

/**
 * @typedef {object} KeyActions
 * @property {(index: number) => void} choose Counts from 0.
 * @property {() => void} submit
 * @property {() => void} clear
 * @property {() => void} undo
 * @property {() => void} decline
 * @property {() => void} guidelines
 * @property {() => void} help
 */

/** @param {KeyActions} actions */
export function useKeys(actions) {
  const latest = useRef(actions);
  latest.current = actions;
  // before the browser paints: a key that is pressed as soon as a task is seen is not lost
  useLayoutEffect(() => {
    /** @param {KeyboardEvent} event */
    const pressed = (event) => {
      if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
      if (act(event, latest.current)) event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

/** @type {Record<string, (actions: KeyActions) => void>} */
const ACTIONS = {
  Enter: (actions) => actions.submit(),
  Escape: (actions) => actions.clear(),
  "?": (actions) => actions.help(),
  u: (actions) => actions.undo(),
  d: (actions) => actions.decline(),
  g: (actions) => actions.guidelines(),
};

/**
 * Do what a key says; returns whether it said something.
 * @param {KeyboardEvent} event
 * @param {KeyActions} actions
 */
function act(event, actions) {
  const target = event.target instanceof HTMLElement ? event.target : null;
  const control = event.ctrlKey || event.metaKey;
  if (event.repeat || event.altKey || (control && event.key !== "Enter")) return false;
  if (target && typesInto(target) && !control) {
    if (event.key !== "Escape") return false;
    target.blur();
    return true;
  }
  if (event.key === "Enter" && !control && target?.closest("button, a, summary")) return false; // Enter presses those
  if (/^[1-9]$/.test(event.key)) {
    actions.choose(Number(event.key) - 1);
    return true;
  }
  const action = ACTIONS[event.key];
  action?.(actions);
  return action !== undefined;
}

/** @param {HTMLElement} element */
function typesInto(element) {
  if (element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement) return true;
  return element instanceof HTMLInputElement && !["checkbox", "radio", "button", "submit"].includes(element.type);
}
