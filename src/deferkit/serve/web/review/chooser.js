// The policies that can be reviewed.

import { get, messageOf } from "../api.js";
import { html, useEffect } from "../dom.js";
import { usePoll } from "../poll.js";
import { navigate } from "../router.js";
import { may } from "../session.js";

/** @typedef {import("../session.js").Session} Session */

const POLL_MS = 5000;

/** @param {{ session: Session }} props */
export default function Chooser({ session }) {
  const { data, error } = usePoll((signal) => get("/v1/policies?limit=1000", { signal }), POLL_MS);
  const names = /** @type {string[] | undefined} */ (data?.policies?.map((/** @type {any} */ each) => each.name ?? each));
  useEffect(() => {
    if (names?.length === 1) navigate(`/review/${encodeURIComponent(names[0] ?? "")}`, { replace: true });
  }, [names?.length]);
  if (!names) return error ? html`<div class="page narrow"><p class="notice bad">${messageOf(error)}</p></div>` : null;
  return html`<div class="page narrow stack">
    <h1>What do you review?</h1>
    ${names.length === 0 &&
    html`<div class="card empty">
      <p class="muted">There is no policy yet.</p>
      ${may(session, "admin") && html`<a class="button primary" href="/console/new">Create the first one</a>`}
    </div>`}
    ${names.map((name) => html`<a class="card chooser" href=${`/review/${encodeURIComponent(name)}`}>${name}<span aria-hidden="true">→</span></a>`)}
  </div>`;
}
