// Light, dark, or as the system says.

/** @typedef {"auto" | "light" | "dark"} Theme */

const KEY = "deferkit.theme";
const CHANGED = "deferkit:theme";

/** @returns {Theme} */
export function theme() {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "auto";
}

/** @param {Theme} chosen */
export function setTheme(chosen) {
  if (chosen === "auto") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, chosen);
  applyTheme();
  dispatchEvent(new Event(CHANGED));
}

/** Put the kept theme on the page. */
export function applyTheme() {
  const chosen = theme();
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

/**
 * Call `changed` whenever colours change; returns what ends that.
 * @param {() => void} changed
 */
export function onThemeChange(changed) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  addEventListener(CHANGED, changed);
  system.addEventListener("change", changed);
  return () => {
    removeEventListener(CHANGED, changed);
    system.removeEventListener("change", changed);
  };
}

/**
 * The colour that a token of style.css has now, for what is drawn on a canvas.
 * @param {string} token Such as `--series-1`.
 */
export function colour(token) {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  probe.hidden = true;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
