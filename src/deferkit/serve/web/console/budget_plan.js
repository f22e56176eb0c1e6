// Form for the plan of a budget: its horizon, its end, or the allowance of coming periods.

import { patch, policyPath } from "../api.js";
import { html, useState } from "../dom.js";
import { useReply } from "../poll.js";
import { Loaded } from "./loaded.js";
import { SaveButton } from "./save_button.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 600_000; // what is being edited is not read again meanwhile

/**
 * @param {object} props
 * @param {string} props.name
 * @param {() => void} props.onChange Called when the plan has changed.
 */
export function BudgetPlan({ name, onChange }) {
  const policy = /** @type {Polled<Api.PolicySpec>} */ (useReply(policyPath(name), EVERY_MS));
  return html`<${Loaded}
    poll=${policy}
    draw=${(/** @type {Api.PolicySpec} */ data) => html`<${PlanForm} policy=${data} onChange=${onChange} />`}
  />`;
}

/** @param {{ policy: Api.PolicySpec, onChange: () => void }} props */
function PlanForm({ policy, onChange }) {
  const limited = Object.entries(policy.budget).filter(([, each]) => each.total !== null);
  const [saved, setSaved] = useState(() => Object.fromEntries(limited.map(([resource, each]) => [resource, textOf(each)])));
  const [given, setGiven] = useState(saved);
  if (!limited.length) return null;
  const changed = limited.filter(([resource]) => given[resource] && given[resource] !== saved[resource]);
  const save = async () => {
    const plans = changed.map(([resource, each]) => [resource, planOf(each, given[resource] ?? "")]);
    await patch(policyPath(policy.name), { budget: Object.fromEntries(plans) });
    setSaved(given);
    onChange();
  };
  return html`<section class="card stack">
    <h2>Plan</h2>
    ${limited.map(
      ([resource, each]) => html`<${PlanField}
        key=${resource}
        resource=${resource}
        budget=${each}
        value=${given[resource] ?? ""}
        onInput=${(/** @type {string} */ text) => setGiven((before) => ({ ...before, [resource]: text }))}
      />`,
    )}
    <${SaveButton} changed=${changed.length > 0} onSave=${save} onUndo=${() => setGiven(saved)} />
  </section>`;
}

/** @param {{ resource: string, budget: Api.BudgetSpec, value: string, onInput: (text: string) => void }} props */
function PlanField({ resource, budget, value, onInput }) {
  const id = `plan-${resource}`;
  const kind = kindOf(budget);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "of this browser";
  const [label, help] = {
    allowance: [`What each period gets, in ${resource}`, `From the next renewal on (every ${budget.every}). This period keeps what it has.`],
    until: [`When the budget of ${resource} ends`, `In the time zone ${zone}.`],
    horizon: [`Number of tasks to plan the budget of ${resource} for`, "Counted from the first task on."],
  }[kind];
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <input
      id=${id}
      type=${kind === "until" ? "datetime-local" : "number"}
      min=${kind === "until" ? undefined : "0"}
      step="any"
      value=${value}
      aria-describedby=${`${id}-help`}
      onInput=${(/** @type {InputEvent} */ event) => onInput(/** @type {HTMLInputElement} */ (event.target).value)}
    />
    <p class="help" id=${`${id}-help`}>${help}</p>
  </div>`;
}

/**
 * What may be changed of a budget: what it was made with.
 * @param {Api.BudgetSpec} budget
 */
function kindOf(budget) {
  return budget.every !== undefined ? "allowance" : budget.until !== undefined ? "until" : "horizon";
}

/**
 * The plan of a budget as it is edited; a time is local, such as 2026-12-31T18:00.
 * @param {Api.BudgetSpec} budget
 */
export function textOf(budget) {
  const kind = kindOf(budget);
  if (kind === "until") return new Date(1000 * Number(budget.until)).toLocaleString("sv").slice(0, 16).replace(" ", "T");
  return String(kind === "allowance" ? budget.total : budget.horizon);
}

/**
 * The change that a text stands for, as the service takes it.
 * @param {Api.BudgetSpec} budget
 * @param {string} text
 */
export function planOf(budget, text) {
  const kind = kindOf(budget);
  return { [kind]: kind === "until" ? new Date(text).getTime() / 1000 : Number(text) };
}
