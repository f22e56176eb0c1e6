// Adding to a budget, with what that is expected to bring.

import { announce } from "../announce.js";
import { messageOf, policyPath, post } from "../api.js";
import { html, useRef, useState } from "../dom.js";
import { amount, number } from "../format.js";
import { requestId } from "./request_id.js";
import { oneOf, rewardUnit } from "./wording.js";

/**
 * The price of one unit of a resource.
 * @param {Api.Standing} standing
 * @param {string} resource
 */
function priceOf({ price }, resource) {
  return typeof price === "number" ? price : (price[resource] ?? 0);
}

/**
 * @param {object} props
 * @param {Api.Standing} props.standing
 * @param {() => void} props.onChange Called when the budget has changed.
 */
export function TopUp({ standing, onChange }) {
  const limited = Object.keys(standing.budget).filter((name) => standing.budget[name]?.total !== null);
  const [resource, setResource] = useState(limited[0] ?? "");
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const [done, setDone] = useState(/** @type {{ added: number, resource: string, before: number } | null} */ (null));
  const id = useRef(requestId());
  if (!limited.length) return null;
  const added = Number(text.replace(",", "."));
  const valid = text.trim() !== "" && Number.isFinite(added) && added !== 0;
  const price = priceOf(standing, resource);
  const worth = (resource === standing.unit ? standing.next_unit : null) ?? price;

  /** @param {Event} event */
  const send = async (event) => {
    event.preventDefault();
    if (!valid || busy) return;
    setBusy(true);
    setTrouble("");
    try {
      await post(policyPath(standing.name, "/budget"), { id: id.current, add: { [resource]: added } });
      id.current = requestId(); // after a failure the same id again: the change is made once
      setDone({ added, resource, before: price });
      setText("");
      announce(`The budget has changed by ${amount(added, resource)}.`);
      onChange();
    } catch (error) {
      setTrouble(messageOf(error));
    } finally {
      setBusy(false);
    }
  };
  return html`<section class="card">
    <h2>Top up</h2>
    <form class="stack" onSubmit=${send}>
      ${limited.length > 1 &&
      html`<div class="field">
        <label for="top-up-resource">Resource</label>
        <select
          id="top-up-resource"
          value=${resource}
          onChange=${(/** @type {Event} */ event) => setResource(/** @type {HTMLSelectElement} */ (event.target).value)}
        >
          ${limited.map((each) => html`<option value=${each}>${each}</option>`)}
        </select>
      </div>`}
      <div class="field">
        <label for="top-up-amount">Add to the budget, in ${resource}</label>
        <input
          id="top-up-amount"
          inputmode="decimal"
          autocomplete="off"
          placeholder="60"
          value=${text}
          aria-describedby="top-up-preview"
          onInput=${(/** @type {InputEvent} */ event) => setText(/** @type {HTMLInputElement} */ (event.target).value)}
        />
        <p class="help" id="top-up-preview">
          ${valid ? preview(added, worth, resource, rewardUnit(standing)) : "A negative number takes budget away."}
          ${standing.budget[resource]?.period?.renews && " It is for this period alone."}
        </p>
      </div>
      <div class="row">
        <button class="button primary" disabled=${!valid || busy}>${added < 0 ? "Cut the budget" : "Add to the budget"}</button>
      </div>
      ${trouble && html`<p class="notice bad" role="alert">${trouble}</p>`}
      ${done &&
      html`<p class="notice good" role="status">
        ${amount(Math.abs(done.added), done.resource)} ${done.added > 0 ? "added" : "taken away"}.
        ${" "}${afterwards(oneOf(done.resource), done.before, priceOf(standing, done.resource))}
      </p>`}
    </form>
  </section>`;
}

/**
 * What has become of the price since a change: it moves with decisions.
 * @param {string} unit
 * @param {number} before
 * @param {number} now
 */
function afterwards(unit, before, now) {
  if (now === before) return `The price of a ${unit} is ${number(now)}, and moves with the next tasks.`;
  return `The price of a ${unit} was ${number(before)} and is now ${number(now)}.`;
}

/**
 * What an amount would bring if each unit brought as much as the next one: the most, since the price falls as budget
 * is added.
 * @param {number} added
 * @param {number} worth
 * @param {string} resource
 * @param {string} unit
 */
function preview(added, worth, resource, unit) {
  const brings = `${number(Number(Math.abs(added * worth).toPrecision(2)))} ${unit}`;
  if (worth === 0) return `There is enough budget: another ${oneOf(resource)} brings nothing.`;
  const sum = `${amount(Math.abs(added), resource)} × ${number(Number(worth.toPrecision(2)))}`;
  if (added < 0) return `An estimate: about ${brings} less (${sum}), or more, since the price rises.`;
  return `An estimate: about ${brings} more (${sum}), or a little less, since the price falls as budget is added.`;
}
