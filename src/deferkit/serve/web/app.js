// The pages by path, and what is around each: the top bar, the session, a place for errors.

import { LiveRegion } from "./announce.js";
import { ApiError, messageOf } from "./api.js";
import { html, render, useEffect, useErrorBoundary, useState } from "./dom.js";
import { match, navigate, useLocation } from "./router.js";
import { homeOf, may, readSession } from "./session.js";
import { applyTheme } from "./theme.js";
import { TopBar } from "./top_bar.js";

/** @typedef {import("./dom.js").Component} Component */
/** @typedef {import("./session.js").Session} Session */
/**
 * A page: its module, and the scopes of which a session needs one.
 * @typedef {object} Page
 * @property {() => Promise<{ default: Component }>} load
 * @property {string} title `{name}` is replaced by the parameter.
 * @property {string[]} scopes
 */

const LOGIN = "/console/login";
const READERS = ["admin", "read"];
const RETRY_MS = 2000;

/**
 * @param {string} pattern
 * @param {string} title
 * @param {string[]} scopes
 * @param {() => Promise<{ default: Component }>} load
 * @returns {import("./router.js").Route<Page>}
 */
const page = (pattern, title, scopes, load) => ({ pattern, to: { title, scopes, load } });

const P = "/console/p/{name}";
const ROUTES = [
  page(LOGIN, "Log in", [], () => import("./console/login.js")),
  page("/console", "Overview", READERS, () => import("./console/overview.js")),
  page("/console/new", "New policy", ["admin"], () => import("./console/first_policy.js")),
  page("/console/keys", "Keys", ["admin"], () => import("./console/keys.js")),
  page(P, "{name}", READERS, () => import("./console/policy.js")),
  page(`${P}/what-if`, "What if · {name}", READERS, () => import("./console/what_if.js")),
  page(`${P}/queue`, "Queue · {name}", READERS, () => import("./console/queue.js")),
  page(`${P}/reviewers`, "Reviewers · {name}", READERS, () => import("./console/reviewers.js")),
  page(`${P}/estimates`, "Estimates · {name}", READERS, () => import("./console/estimates.js")),
  page(`${P}/decisions`, "Decisions · {name}", READERS, () => import("./console/decisions.js")),
  page(`${P}/decisions/{task}`, "{task} · {name}", READERS, () => import("./console/task.js")),
  page(`${P}/settings`, "Settings · {name}", READERS, () => import("./console/settings.js")),
  page("/review", "Review", ["review"], () => import("./review/chooser.js")),
  page("/review/{name}", "Review · {name}", ["review"], () => import("./review/page.js")),
];

function App() {
  const at = useLocation();
  const path = at.split("?")[0] ?? "";
  const [session, setSession] = useState(/** @type {Session | null} */ (null));
  const [trouble, setTrouble] = useState("");
  const found = match(ROUTES, path);
  const open = path === LOGIN;

  useEffect(() => {
    if (open || session) return;
    let stopped = false;
    let timer = 0;
    const read = async () => {
      try {
        const there = await readSession();
        if (stopped) return;
        setTrouble("");
        setSession(there);
      } catch (error) {
        if (stopped) return;
        if (error instanceof ApiError && error.status === 401) {
          navigate(`${LOGIN}?next=${encodeURIComponent(at)}`, { replace: true });
        } else {
          setTrouble(messageOf(error));
          timer = setTimeout(read, RETRY_MS);
        }
      }
    };
    void read();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [open, session, at]);

  let content;
  if (!found) content = html`<${Message} title="There is no such page" text=${path} />`;
  else if (open) content = html`<${Loaded} key=${path} page=${found.to} params=${found.params} session=${null} />`;
  else if (trouble) content = html`<${Message} title="Waiting for the service" text=${trouble} />`;
  else if (!session) content = null;
  else if (!may(session, ...found.to.scopes)) {
    const needed = `It needs the scope ${found.to.scopes.join(" or ")}.`;
    content = html`<${Message} title="This key does not open this page" text=${needed} to=${homeOf(session)} />`;
  } else content = html`<${Loaded} key=${path} page=${found.to} params=${found.params} session=${session} />`;
  return html`<a class="skip" href="#app">Skip to content</a>
    <${TopBar} session=${open ? null : session} path=${path} />
    <main id="app" tabindex="-1">${content}</main>
    <${LiveRegion} />`;
}

/**
 * A page once its module is there; if the page breaks, what happened and a way to start it again.
 * @param {{ page: Page, params: Record<string, string>, session: Session | null }} props
 */
function Loaded({ page, params, session }) {
  const [loaded, setLoaded] = useState(/** @type {{ component: Component } | null} */ (null));
  const [failure, setFailure] = useState("");
  const [broken, again] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    document.title = `${page.title.replace(/\{(\w+)\}/g, (_, name) => params[name] ?? "")} · deferkit`;
    page.load().then(
      (module) => setLoaded({ component: module.default }),
      (error) => setFailure(messageOf(error)),
    );
  }, []);
  if (failure) return html`<${Message} title="The page could not be loaded" text=${failure} reload />`;
  if (broken) return html`<${Message} title="Something went wrong on this page" text=${messageOf(broken)} onRetry=${again} />`;
  return loaded && html`<${loaded.component} params=${params} session=${session} />`;
}

/** @param {{ title: string, text?: string, to?: string, reload?: boolean, onRetry?: () => void }} props */
function Message({ title, text, to, reload, onRetry }) {
  return html`<div class="page narrow"><div class="card empty" role="alert">
    <h1>${title}</h1>
    <p class="muted">${text}</p>
    ${to && html`<a class="button" href=${to}>Go to your page</a>`}
    ${reload && html`<button type="button" class="button" onClick=${() => location.reload()}>Load again</button>`}
    ${onRetry && html`<button type="button" class="button" onClick=${onRetry}>Try again</button>`}
  </div></div>`;
}

applyTheme();
const root = document.getElementById("root");
if (root) render(html`<${App} />`, root);
