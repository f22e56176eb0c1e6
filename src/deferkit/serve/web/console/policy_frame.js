// What is around every page of a policy: its name and the way to its other pages.

import { html, useEffect, useRef } from "../dom.js";
import { may } from "../session.js";
import { GivenText } from "./given_text.js";

/** @type {[string, string][]} */
const TABS = [
  ["", "Budget"],
  ["/queue", "Queue"],
  ["/decisions", "Decisions"],
  ["/reviewers", "Reviewers"],
  ["/estimates", "Estimates"],
  ["/what-if", "What if"],
  ["/settings", "Settings"],
];

/**
 * The address of a page of a policy.
 * @param {string} name
 * @param {string} [rest] Begins with a slash.
 */
export function pageOf(name, rest = "") {
  return `/console/p/${encodeURIComponent(name)}${rest}`;
}

/**
 * The address of the page of a task.
 * @param {string} name
 * @param {string} task
 */
export function taskPage(name, task) {
  return pageOf(name, `/decisions/${encodeURIComponent(task)}`);
}

/**
 * @param {object} props
 * @param {string} props.name
 * @param {string} props.tab The end of the address of the page.
 * @param {import("../session.js").Session} props.session
 * @param {import("../dom.js").Child} [props.children]
 */
export function PolicyFrame({ name, tab, session, children }) {
  const tabs = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    // on a phone the tabs are wider than the page
    const current = tabs.current?.querySelector("[aria-current]");
    if (tabs.current && current instanceof HTMLElement) tabs.current.scrollLeft = current.offsetLeft - 80;
  }, []);
  return html`<div class="page">
    <nav class="crumbs small" aria-label="Breadcrumb"><a href="/console">Policies</a> <span aria-hidden="true">/</span></nav>
    <div class="page-head policy-head">
      <h1 class="break"><${GivenText} text=${name} /></h1>
      ${may(session, "review") &&
      html`<a class="button small" href=${`/review/${encodeURIComponent(name)}`}>Review tasks</a>`}
    </div>
    <nav class="tabs" aria-label="Pages of this policy" ref=${tabs}>
      ${TABS.map(
        ([rest, text]) =>
          html`<a href=${pageOf(name, rest)} aria-current=${rest === tab ? "page" : null}>${text}</a>`,
      )}
    </nav>
    <div class="stack loose">${children}</div>
  </div>`;
}
