// Light, dark, or as the system says.

/** @typedef {"auto" | "light" | "dark"} Theme */

const KEY = "deferkit.theme";

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
}

/** Put the kept theme on the page. */
export function applyTheme() {
  const chosen = theme();
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}
