// What the browser keeps for this site. Where it keeps nothing (private windows, no room), the page goes on without.

const PREFIX = "deferkit.";

/**
 * Read what was kept; null if there is nothing, or nothing that can be read.
 * @param {string} key
 * @returns {any}
 */
export function kept(key) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + key) ?? "null");
  } catch {
    return null;
  }
}

/**
 * Keep a value; returns whether that worked.
 * @param {string} key
 * @param {unknown} value
 */
export function keep(key, value) {
  try {
    localStorage.setItem(PREFIX + key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** @param {string} key */
export function drop(key) {
  try {
    localStorage.removeItem(PREFIX + key);
  } catch {
    // then there is nothing to drop
  }
}

/**
 * The keys that begin so.
 * @param {string} start
 * @returns {string[]}
 */
export function keptKeys(start) {
  try {
    const names = Object.keys(localStorage).filter((name) => name.startsWith(PREFIX + start));
    return names.map((name) => name.slice(PREFIX.length));
  } catch {
    return [];
  }
}

/**
 * Call `changed` when another tab keeps something under a key; returns what ends that.
 * @param {string} key
 * @param {(value: any) => void} changed
 */
export function onKept(key, changed) {
  /** @param {StorageEvent} event */
  const heard = (event) => {
    if (event.key === PREFIX + key) changed(kept(key));
  };
  addEventListener("storage", heard);
  return () => removeEventListener("storage", heard);
}
