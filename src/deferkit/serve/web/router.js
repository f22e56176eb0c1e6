// Which page the address names, and going to another one without loading everything again.

import { useEffect, useState } from "./dom.js";

const CHANGED = "deferkit:navigate";

/**
 * A pattern such as `/console/p/{name}` and what it leads to.
 * @template T
 * @typedef {{ pattern: string, to: T }} Route
 */

/**
 * Go to a path of this site.
 * @param {string} path
 * @param {{ replace?: boolean }} [options]
 */
export function navigate(path, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  scrollTo(0, 0);
  dispatchEvent(new Event(CHANGED));
}

/** The path and query of the address; the component is drawn again when they change. */
export function useLocation() {
  const [at, setAt] = useState(() => location.pathname + location.search);
  useEffect(() => {
    const changed = () => setAt(location.pathname + location.search);
    addEventListener(CHANGED, changed);
    addEventListener("popstate", changed);
    document.addEventListener("click", followLink);
    return () => {
      removeEventListener(CHANGED, changed);
      removeEventListener("popstate", changed);
      document.removeEventListener("click", followLink);
    };
  }, []);
  return at;
}

/**
 * The first route that fits a path, and the values of its parameters.
 * @template T
 * @param {Route<T>[]} routes
 * @param {string} path
 * @returns {{ to: T, params: Record<string, string> } | null}
 */
export function match(routes, path) {
  const parts = path.replace(/\/+$/, "").split("/");
  for (const { pattern, to } of routes) {
    const params = paramsOf(pattern.split("/"), parts);
    if (params) return { to, params };
  }
  return null;
}

/**
 * @param {string[]} pattern
 * @param {string[]} parts
 */
function paramsOf(pattern, parts) {
  if (pattern.length !== parts.length) return null;
  /** @type {Record<string, string>} */
  const params = {};
  for (const [index, expected] of pattern.entries()) {
    const part = parts[index] ?? "";
    if (expected.startsWith("{")) params[expected.slice(1, -1)] = decoded(part);
    else if (expected !== part) return null;
  }
  return params;
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {MouseEvent} event */
function followLink(event) {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
    return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (!/^\/(console|review)(\/|$)/.test(link.pathname)) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
}
