// The page that exchanges a key for a session.

import { messageOf, post } from "../api.js";
import { html, useState } from "../dom.js";
import { homeOf, readSession } from "../session.js";

export default function Login() {
  const [key, setKey] = useState("");
  const [reviewer, setReviewer] = useState("");
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);

  /** @param {Event} event */
  const enter = async (event) => {
    event.preventDefault();
    setBusy(true);
    setWrong("");
    try {
      await post("/v1/session", { key: key.trim() || null, reviewer: reviewer.trim() || null }, { stay: true });
      location.assign(nextPage() ?? homeOf(await readSession()));
    } catch (error) {
      setWrong(messageOf(error));
      setBusy(false);
    }
  };

  return html`<div class="page narrow login">
    <form class="card stack" onSubmit=${enter}>
      <h1>Log in</h1>
      <p class="muted">With a key of <code>deferkit keys create</code>. It is sent once; the browser keeps a session.</p>
      <div class="field">
        <label for="key">Key</label>
        <input id="key" type="password" autocomplete="current-password" required placeholder="dk_…" value=${key}
          spellcheck="false" aria-invalid=${wrong ? "true" : null} aria-describedby="login-wrong"
          onInput=${(/** @type {any} */ event) => setKey(event.target.value)} />
      </div>
      <div class="field">
        <label for="reviewer">Your name as a reviewer</label>
        <input id="reviewer" autocomplete="username" maxlength="128" value=${reviewer} aria-describedby="reviewer-help"
          onInput=${(/** @type {any} */ event) => setReviewer(event.target.value)} />
        <p class="help" id="reviewer-help">
          Your answers are kept under it. Leave it empty if you do not review, or if the key was made for you.
        </p>
      </div>
      <div id="login-wrong" role="alert">${wrong && html`<p class="notice bad">${wrong}</p>`}</div>
      <div><button class="button primary" disabled=${busy}>${busy ? "Logging in …" : "Log in"}</button></div>
    </form>
  </div>`;
}

/** The page that asked for a login, if it is one of this site. */
function nextPage() {
  const next = new URLSearchParams(location.search).get("next");
  return next && /^\/(console|review)(\/|\?|$)/.test(next) ? next : null;
}
