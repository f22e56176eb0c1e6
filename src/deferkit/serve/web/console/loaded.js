// What a page shows while it has nothing to show: loading, failed, empty.

import { ApiError, messageOf } from "../api.js";
import { html } from "../dom.js";

/**
 * What `draw` makes of polled data; before that a placeholder, and why there is none.
 * @template T
 * @param {object} props
 * @param {import("../poll.js").Polled<T>} props.poll
 * @param {(data: T) => import("../dom.js").Child} props.draw
 */
export function Loaded({ poll, draw }) {
  const { data, error, refresh } = poll;
  if (data !== null)
    return html`${error !== null &&
      html`<div class="notice warn" role="status">Not up to date: ${messageOf(error)} Trying again.</div>`}
    ${draw(data)}`;
  if (error === null) return html`<p class="loading muted" role="status">Loading…</p>`;
  const absent = error instanceof ApiError && error.status === 404;
  return html`<div class="card empty" role="alert">
    <h2>${absent ? "Not found" : "This could not be read"}</h2>
    <p class="muted break">${messageOf(error)}</p>
    ${absent
      ? html`<a class="button" href="/console">Go to the overview</a>`
      : html`<button type="button" class="button" onClick=${refresh}>Try again</button>`}
  </div>`;
}

/**
 * Nothing is there yet, and what to do about it.
 * @param {object} props
 * @param {string} props.title
 * @param {import("../dom.js").Child} [props.children]
 */
export function Empty({ title, children }) {
  return html`<div class="card empty"><h2>${title}</h2>${children}</div>`;
}
