// The bar above every page: where one can go, colours, and who is here.

import { messageOf, del } from "./api.js";
import { announce } from "./announce.js";
import { html, useState } from "./dom.js";
import { homeOf, may } from "./session.js";
import { setTheme, theme } from "./theme.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./theme.js").Theme} Theme */

/** @type {Record<Theme, { next: Theme, icon: string, text: string }>} */
const THEMES = {
  auto: { next: "light", icon: "◐", text: "Colours: as the system says" },
  light: { next: "dark", icon: "☀", text: "Colours: light" },
  dark: { next: "auto", icon: "☾", text: "Colours: dark" },
};

/** @param {{ session: Session | null, path: string }} props */
export function TopBar({ session, path }) {
  /** @type {[string, string, boolean][]} */
  const links = session
    ? [
        ["/console", "Overview", may(session, "admin", "read")],
        ["/review", "Review", may(session, "review")],
        ["/console/keys", "Keys", may(session, "admin")],
      ]
    : [];
  const within = links.map(([to]) => to).filter((to) => path === to || path.startsWith(`${to}/`));
  const current = within.sort((a, b) => b.length - a.length)[0];
  return html`<header class="topbar">
    <a class="brand" href=${session ? homeOf(session) : "/console"}>
      <img src="/web/icon.svg" alt="" width="24" height="24" /><span>deferkit</span>
    </a>
    ${session &&
    html`<nav aria-label="Main">
      ${links.map(
        ([to, text, shown]) => shown && html`<a href=${to} aria-current=${to === current ? "page" : null}>${text}</a>`,
      )}
    </nav>`}
    <div class="topbar-end">
      ${session && html`<${Who} session=${session} />`}
      <${ThemeButton} />
    </div>
  </header>`;
}

/** @param {{ session: Session }} props */
function Who({ session }) {
  const leave = async () => {
    try {
      await del("/v1/session", { stay: true });
      location.assign("/console/login");
    } catch (error) {
      announce(messageOf(error));
    }
  };
  if (session.open) {
    const why = "There are no keys: only this machine can open the console";
    return html`<span class="who muted" title=${why}>${session.reviewer ?? "local"}</span>`;
  }
  return html`<span class="who muted">${session.reviewer ?? session.tenant}</span>
    <button type="button" class="button quiet small" onClick=${leave}>Log out</button>`;
}

function ThemeButton() {
  const [chosen, setChosen] = useState(theme);
  const { next, icon, text } = THEMES[chosen];
  const change = () => {
    setTheme(next);
    setChosen(next);
  };
  return html`<button type="button" class="button quiet small icon" title=${text} aria-label=${text} onClick=${change}>
    ${icon}
  </button>`;
}
