// One tab at a time: two would claim for the same reviewer, and take each other's tasks.

import { useEffect, useState } from "../dom.js";
import { keep, onKept } from "../storage.js";

/**
 * Whether this tab is the one that was opened, or taken, last; and a call that takes over.
 * @param {string} name What only one tab does.
 * @returns {[boolean, () => void]}
 */
export function useOnlyTab(name) {
  const [active, setActive] = useState(true);
  const key = `tab.${name}`;
  const take = () => {
    keep(key, crypto.getRandomValues(new Uint32Array(2)).join("-"));
    setActive(true);
  };
  useEffect(() => {
    take();
    return onKept(key, () => setActive(false));
  }, [key]);
  return [active, take];
}
