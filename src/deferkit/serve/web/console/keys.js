// Keys: who may call the service and open the console; new ones, and revoking.

import { useSubmit } from "../action.js";
import { announce } from "../announce.js";
import { post } from "../api.js";
import { html, useState } from "../dom.js";
import { ago, clock } from "../format.js";
import { useReply } from "../poll.js";
import { ConfirmButton } from "./confirm_button.js";
import { GivenText } from "./given_text.js";
import { Empty, Loaded } from "./loaded.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 10_000;
const DAY_S = 86_400;
/** @type {Record<string, string>} */
const SCOPES = {
  review: "answers tasks on the review page",
  read: "sees the dashboard, changes nothing",
  admin: "creates policies, budgets and keys",
  decide: "sends tasks",
  observe: "reports outcomes",
  operator: "reads metrics of the whole process",
};
/** @type {[string, string][]} */
const LIFETIMES = [
  ["", "never"],
  [String(DAY_S), "in a day"],
  [String(30 * DAY_S), "in 30 days"],
  [String(365 * DAY_S), "in a year"],
];

/** @typedef {import("../session.js").Session} Session */

/** @param {{ session: Session }} props */
export default function Keys({ session }) {
  if (session.open)
    return html`<div class="page narrow">
      <div class="page-head"><h1>Keys</h1></div>
      <${Empty} title="This service has no keys">
        <p class="muted">Everybody on this machine may do everything, and nobody else can reach it. The first key is made on the command line:</p>
        <pre class="code" tabindex="0">deferkit keys create --name me</pre>
        <p class="muted">After that the console asks for a key, and further ones are made here.</p>
      <//>
    </div>`;
  return html`<${KeyPage} session=${session} />`;
}

/** @param {{ session: Session }} props */
function KeyPage({ session }) {
  const poll = /** @type {Polled<Api.KeyPage>} */ (useReply("/v1/keys", EVERY_MS));
  return html`<div class="page">
    <div class="page-head"><h1>Keys</h1></div>
    <div class="stack loose">
      <${NewKey} session=${session} onChange=${poll.refresh} />
      <${Loaded} poll=${poll} draw=${(/** @type {Api.KeyPage} */ data) => html`<${KeyTable} keys=${data.keys} own=${session.key} onChange=${poll.refresh} />`} />
    </div>
  </div>`;
}

/** @param {{ session: Session, onChange: () => void }} props */
function NewKey({ session, onChange }) {
  const [made, setMade] = useState(/** @type {Api.NewKeyReply | null} */ (null));
  const { trouble, run } = useSubmit(async (form) => {
    const given = new FormData(form);
    const lifetime = Number(given.get("expires"));
    const reviewer = String(given.get("reviewer") ?? "").trim();
    const key = await post("/v1/keys", {
      scopes: given.getAll("scope"),
      name: String(given.get("name") ?? "").trim(),
      expires_s: lifetime || null,
      reviewer: reviewer || null,
    });
    setMade(key);
    form.reset();
    announce("The key was created.");
    onChange();
  });
  return html`<section class="card stack">
    <h2>New key</h2>
    <form class="stack" onSubmit=${run}>
      <fieldset class="field">
        <legend>What it may do</legend>
        <div class="scopes">
          ${Object.keys(SCOPES)
            .filter((scope) => session.scopes.includes(scope))
            .map(
              (scope) => html`<label class="check">
                <input type="checkbox" name="scope" value=${scope} /> <span><b>${scope}</b> <span class="muted small">${SCOPES[scope]}</span></span>
              </label>`,
            )}
        </div>
      </fieldset>
      <div class="field-row">
        <div class="field">
          <label for="key-name">Name</label>
          <input id="key-name" name="name" maxlength="64" autocomplete="off" placeholder="who or what uses it" />
        </div>
        <div class="field">
          <label for="key-reviewer">Only for reviewer</label>
          <input id="key-reviewer" name="reviewer" maxlength="128" autocomplete="off" placeholder="any" />
        </div>
        <div class="field">
          <label for="key-expires">Expires</label>
          <select id="key-expires" name="expires">
            ${LIFETIMES.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
          </select>
        </div>
      </div>
      <div class="row"><button class="button primary">Create the key</button></div>
      ${trouble && html`<p class="notice bad" role="alert">${trouble}</p>`}
    </form>
    ${made && html`<${Secret} secret=${made.key} onHide=${() => setMade(null)} />`}
  </section>`;
}

/** @param {{ secret: string, onHide: () => void }} props */
export function Secret({ secret, onHide }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(secret);
    setCopied(true);
    announce("Copied.");
  };
  return html`<div class="notice good stack tight" role="status">
    <strong>Copy it now: it is not shown again.</strong>
    <code class="secret">${secret}</code>
    <div class="row">
      ${"clipboard" in navigator && html`<button type="button" class="button small" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>`}
      <button type="button" class="button small" onClick=${onHide}>I have it</button>
    </div>
  </div>`;
}

/** @param {{ keys: Api.KeyLine[], own: string, onChange: () => void }} props */
function KeyTable({ keys, own, onChange }) {
  const now = Date.now() / 1000;
  const order = (/** @type {Api.KeyLine} */ key) => (usable(key, now) ? 0 : 1);
  const shown = [...keys].sort((a, b) => order(a) - order(b) || b.created - a.created);
  return html`<div class="card flush scroll" tabindex="0" role="region" aria-label="Keys">
    <table class="data">
      <thead>
        <tr><th>Name</th><th>Scopes</th><th class="optional">Reviewer</th><th class="optional">Created</th><th class="optional">Expires</th><th class="optional">Last used</th><th><span class="visually-hidden">Actions</span></th></tr>
      </thead>
      <tbody>
        ${shown.map(
          (key) => html`<tr key=${key.id} class=${usable(key, now) ? "" : "muted"}>
            <td class="id"><${GivenText} text=${key.name || "–"} /> <span class="small muted mono">${key.id.slice(0, 8)}</span></td>
            <td>${key.scopes.map((scope) => html`<span class="badge">${scope}</span> `)}</td>
            <td class="id optional">${key.reviewer === null ? "any" : html`<${GivenText} text=${key.reviewer} />`}</td>
            <td class="nowrap optional">${clock(key.created)}</td>
            <td class="nowrap optional">${key.expires === null ? "never" : ago(key.expires)}</td>
            <td class="nowrap optional">${key.last_used === null ? "never" : ago(key.last_used)}</td>
            <td class="actions"><${Revoke} keyLine=${key} own=${key.id === own} onChange=${onChange} /></td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * @param {Api.KeyLine} key
 * @param {number} now
 */
function usable(key, now) {
  return key.revoked === null && (key.expires === null || key.expires > now);
}

/** @param {{ keyLine: Api.KeyLine, own: boolean, onChange: () => void }} props */
function Revoke({ keyLine, own, onChange }) {
  if (keyLine.revoked !== null) return html`<span class="badge">revoked</span>`;
  if (keyLine.expires !== null && keyLine.expires < Date.now() / 1000) return html`<span class="badge">expired</span>`;
  const revoke = async () => {
    await post("/v1/keys/revoke", { id: keyLine.id });
    onChange();
  };
  const question = own ? "This is your own key: you will be logged out. Revoke it?" : "Requests with this key will be refused at once. Revoke it?";
  return html`<${ConfirmButton} text="Revoke" about=${keyLine.name || keyLine.id} question=${question} onConfirm=${revoke} />`;
}
