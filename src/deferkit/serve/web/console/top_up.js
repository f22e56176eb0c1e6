// Form that adds to a budget or cuts it: preview, confirmation, and undo within a minute.

import { useAction } from "../action.js";
import { announce } from "../announce.js";
import { policyPath, post } from "../api.js";
import { html, useEffect, useRef, useState } from "../dom.js";
import { amount, exact, inWords, number, parseNumber } from "../format.js";
import { requestId } from "./request_id.js";
import { oneOf, rewardUnit } from "./wording.js";

const UNDO_MS = 60_000;

/** @typedef {{ added: number, resource: string, before: number, undone: boolean }} Change */

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
  const [done, setDone] = useState(/** @type {Change | null} */ (null));
  const [asked, setAsked] = useState(false);
  const [undoable, setUndoable] = useState(false);
  const id = useRef(requestId());
  useEffect(() => {
    if (!undoable) return undefined;
    const timer = setTimeout(() => setUndoable(false), UNDO_MS);
    return () => clearTimeout(timer);
  }, [undoable, done]);
  const { busy, trouble, run: book } = useAction(async (/** @type {Change} */ change) => {
    await post(policyPath(standing.name, "/budget"), { id: id.current, add: { [change.resource]: change.added } });
    id.current = requestId(); // after a failure the same id again: the change is made once
    setDone(change);
    setUndoable(!change.undone);
    setAsked(false);
    setText("");
    announce(`The budget changed by ${amount(change.added, change.resource)}.`);
    onChange();
  });
  if (!limited.length) return null;
  const added = parseNumber(text);
  const valid = added !== null && added !== 0;
  const unclear = text.trim() !== "" && added === null;
  const price = priceOf(standing, resource);
  const worth = (resource === standing.unit ? standing.next_unit : null) ?? price;

  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    if (!valid || busy) return;
    if (asked) void book({ added, resource, before: price, undone: false });
    else setAsked(true);
  };
  const edit = (/** @type {string} */ given) => {
    setText(given);
    setAsked(false);
  };
  return html`<section class="card">
    <h2>Top up</h2>
    <form class="stack" onSubmit=${submit}>
      ${limited.length > 1 &&
      html`<div class="field">
        <label for="top-up-resource">Resource</label>
        <select
          id="top-up-resource"
          value=${resource}
          onChange=${(/** @type {Event} */ event) => {
            setResource(/** @type {HTMLSelectElement} */ (event.target).value);
            edit(text);
          }}
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
          placeholder="1,000"
          aria-invalid=${unclear}
          value=${text}
          aria-describedby="top-up-preview"
          onInput=${(/** @type {InputEvent} */ event) => edit(/** @type {HTMLInputElement} */ (event.target).value)}
        />
        <p class="help" id="top-up-preview">
          ${unclear
            ? "Write the amount like 1,000 or 12.5."
            : valid
              ? preview(added, worth, resource, rewardUnit(standing))
              : "A negative number takes budget away."}
          ${standing.budget[resource]?.period?.renews && " It is for this period alone."}
        </p>
      </div>
      ${valid && asked && html`<p><strong>${inFull(added, resource)}</strong></p>`}
      <div class="row">
        <button class="button primary" disabled=${!valid || busy}>
          ${valid && asked ? "Confirm" : added !== null && added < 0 ? "Cut the budget" : "Add to the budget"}
        </button>
        ${asked && html`<button type="button" class="button quiet" onClick=${() => setAsked(false)}>Cancel</button>`}
      </div>
      ${trouble && html`<p class="notice bad" role="alert">${trouble}</p>`}
      ${done &&
      html`<p class="notice good" role="status">
        ${amount(Math.abs(done.added), done.resource)} ${done.added > 0 ? "added" : "taken away"}${done.undone ? ": the change was undone" : ""}.
        ${" "}${afterwards(oneOf(done.resource), done.before, priceOf(standing, done.resource))}
        ${undoable &&
        html` <button type="button" class="button small" disabled=${busy} onClick=${() => book({ ...done, added: -done.added, undone: true })}>Undo</button>`}
      </p>`}
    </form>
  </section>`;
}

/**
 * An amount in digits and in words, to be read before it is confirmed.
 * @param {number} added
 * @param {string} resource
 */
function inFull(added, resource) {
  const size = Math.abs(added);
  return `${added < 0 ? "Take away" : "Add"} ${exact(size)} (${inWords(size)}) ${resource}?`;
}

/**
 * The price since a change, as a sentence: it moves with decisions.
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
