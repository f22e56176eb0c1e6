// What pages are drawn with. `html` builds elements; text in it is text, never markup.
export {
  h,
  html,
  render,
  useCallback,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "./vendor/htm-preact-standalone.js";

/** @typedef {import("./vendor/htm-preact-standalone.js").VNode} VNode */
/** @typedef {import("./vendor/htm-preact-standalone.js").Child} Child */
/** @typedef {import("./vendor/htm-preact-standalone.js").Component} Component */

/**
 * The classes that hold, as one attribute.
 * @param {...(string | false | null | undefined)} names
 */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}
