// Webhooks: addresses that are told what happens.

import { useSubmit } from "../action.js";
import { announce } from "../announce.js";
import { post, query } from "../api.js";
import { html, useState } from "../dom.js";
import { ago, number } from "../format.js";
import { useReply } from "../poll.js";
import { ConfirmButton } from "./confirm_button.js";
import { GivenText } from "./given_text.js";
import { Secret } from "./keys.js";
import { Loaded } from "./loaded.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 10_000;
/** @type {[string, string][]} */
const EVENTS = [
  ["decided", "a person is asked"],
  ["completed", "a task was answered"],
  ["expired", "a review expired"],
  ["budget", "a budget alarm"],
];

/** @param {{ policy: string }} props */
export function Webhooks({ policy }) {
  const poll = /** @type {Polled<Api.WebhookPage>} */ (useReply("/v1/webhooks", EVERY_MS));
  return html`<section class="card stack">
    <h2>Webhooks</h2>
    <${Loaded}
      poll=${poll}
      draw=${(/** @type {Api.WebhookPage} */ data) => {
        const shown = data.webhooks.filter((hook) => hook.policies === null || hook.policies.includes(policy));
        return shown.length
          ? html`<ul class="hooks">
              ${shown.map(
                (hook) => html`<${Hook} key=${hook.id} hook=${hook} backlog=${data.backlogs[hook.id]} onChange=${poll.refresh} />`,
              )}
            </ul>`
          : html`<p class="muted">No webhooks yet. Add one to receive answers without polling.</p>`;
      }}
    />
    <${NewHook} policy=${policy} onChange=${poll.refresh} />
  </section>`;
}

/** @param {{ hook: Api.WebhookLine, backlog?: Api.Backlog, onChange: () => void }} props */
function Hook({ hook, backlog, onChange }) {
  const [open, setOpen] = useState(false);
  const remove = async () => {
    await post("/v1/webhooks/delete", { id: hook.id });
    onChange();
  };
  return html`<li>
    <div class="row spread">
      <span class="break"><${GivenText} text=${hook.url} /></span>
      <span class="row">
        ${hook.events.map((event) => html`<span class="badge">${event}</span>`)}
        ${hook.policies === null && html`<span class="badge">all policies</span>`}
        <button type="button" class="button small quiet" aria-expanded=${open} onClick=${() => setOpen(!open)}>Deliveries</button>
        <${ConfirmButton} text="Remove" about=${hook.url} question="Stop sending events to this address?" onConfirm=${remove} />
      </span>
    </div>
    ${open && html`<${Deliveries} id=${hook.id} backlog=${backlog} />`}
  </li>`;
}

/** @param {{ id: string, backlog?: Api.Backlog }} props */
function Deliveries({ id, backlog }) {
  const poll = /** @type {Polled<Api.DeliveryPage>} */ (useReply(`/v1/webhooks/deliveries${query({ id })}`, EVERY_MS));
  return html`${backlog?.dropped
    ? html`<p class="notice bad">${number(backlog.dropped)} events were given up because too many waited.</p>`
    : backlog?.waiting
      ? html`<p class="muted small">${number(backlog.waiting)} events wait.</p>`
      : null}<${Loaded}
    poll=${poll}
    draw=${(/** @type {Api.DeliveryPage} */ data) =>
      data.deliveries.length
        ? html`<div class="scroll" tabindex="0" role="region" aria-label="Deliveries">
            <table class="data">
              <thead><tr><th>Event</th><th>State</th><th class="right">Attempts</th><th>Last reply</th><th>Created</th></tr></thead>
              <tbody>
                ${data.deliveries.map(
                  (each) => html`<tr key=${each.id}>
                    <td>${each.event}</td>
                    <td>${each.state}${each.due === null ? "" : `, next try ${ago(each.due)}`}</td>
                    <td class="right">${number(each.attempts)}</td>
                    <td class="break">${each.status ?? each.error ?? "–"}</td>
                    <td class="nowrap">${ago(each.created)}</td>
                  </tr>`,
                )}
              </tbody>
            </table>
          </div>`
        : html`<p class="muted small">Nothing was delivered yet.</p>`}
  />`;
}

/** @param {{ policy: string, onChange: () => void }} props */
function NewHook({ policy, onChange }) {
  const [secret, setSecret] = useState("");
  const { trouble, run } = useSubmit(async (form) => {
    const given = new FormData(form);
    const made = await post("/v1/webhooks", {
      url: String(given.get("url") ?? "").trim(),
      events: given.getAll("event"),
      policies: [policy],
    });
    setSecret(made.secret);
    form.reset();
    announce("The webhook was added.");
    onChange();
  });
  return html`<form class="stack" onSubmit=${run}>
      <div class="field">
        <label for="hook-url">Address</label>
        <input id="hook-url" name="url" type="url" required autocomplete="off" placeholder="https://…" />
      </div>
      <fieldset class="field">
        <legend>Events to send</legend>
        <div class="row">
          ${EVENTS.map(
            ([event, text]) => html`<label class="check"><input type="checkbox" name="event" value=${event} checked=${event === "completed"} /> ${text}</label>`,
          )}
        </div>
      </fieldset>
      <div class="row"><button class="button">Add a webhook</button></div>
      ${trouble && html`<p class="notice bad" role="alert">${trouble}</p>`}
    </form>
    ${secret && html`<p>Deliveries are signed with this secret.</p><${Secret} secret=${secret} onHide=${() => setSecret("")} />`}`;
}
