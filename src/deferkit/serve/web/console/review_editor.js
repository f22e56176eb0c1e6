// The review form of a policy: its fields are edited on one side and shown as reviewers see them on the other.

import { patch, policyPath } from "../api.js";
import { html, useState } from "../dom.js";
import { ReviewForm } from "../review/form.js";
import { FieldEditor, newField } from "./field_editor.js";
import { SaveButton } from "./save_button.js";

const MAX_FIELDS = 20;
/** @type {[string, string][]} */
const PAYLOADS = [
  ["auto", "by its content"],
  ["text", "text"],
  ["fields", "names and values"],
  ["table", "table"],
  ["chat", "conversation"],
  ["image", "image"],
  ["json", "JSON"],
];
/** @type {[string, string][]} */
const MODEL_ANSWERS = [
  ["hidden", "hidden"],
  ["after", "shown after the answer"],
  ["shown", "shown from the start"],
];
/** @type {[string, string][]} */
const RULES = [
  ["", "reported by callers"],
  ["match", "1 if most reviewers agree"],
];

/** @typedef {Api.ReviewDocument} ReviewDocument */
/** @typedef {Api.FormField} FormField */

/** @param {{ policy: Api.PolicySpec, initial: ReviewDocument }} props */
export function ReviewEditor({ policy, initial }) {
  const [saved, setSaved] = useState(initial);
  const [given, setGiven] = useState(initial);
  const [values, setValues] = useState(/** @type {Record<string, unknown>} */ ({}));
  /** @param {Partial<ReviewDocument>} change */
  const change = (change) => setGiven((before) => ({ ...before, ...change }));
  /**
   * @param {number} place
   * @param {FormField[]} fields What stands there instead: none, one, or several.
   */
  const replace = (place, fields) => change({ form: given.form.toSpliced(place, 1, ...fields) });
  const save = async () => {
    await patch(policyPath(policy.name), { review: given });
    setSaved(given);
  };
  return html`<section class="card stack">
    <h2>Review form</h2>
    <div class="columns editor">
      <div class="stack">
        ${given.form.map(
          (field, place) => html`<${FieldEditor}
            key=${place}
            place=${place}
            field=${field}
            last=${given.form.length === 1}
            onChange=${(/** @type {FormField} */ changed) => replace(place, [changed])}
            onRemove=${() => replace(place, [])}
          />`,
        )}
        ${given.form.length < MAX_FIELDS &&
        html`<div class="row">
          <button type="button" class="button small" onClick=${() => change({ form: [...given.form, newField(given.form)] })}>Add a field</button>
        </div>`}
        <div class="field">
          <label for="guidelines">Guidelines</label>
          <textarea
            id="guidelines"
            rows="6"
            maxlength="20000"
            value=${given.guidelines}
            onInput=${(/** @type {InputEvent} */ event) => change({ guidelines: /** @type {HTMLTextAreaElement} */ (event.target).value })}
          ></textarea>
          <p class="help">Shown beside every task.</p>
        </div>
        <div class="field-row">
          <${Select} id="payload-kind" label="Payload is shown as" value=${given.payload} options=${PAYLOADS} onChange=${(/** @type {any} */ payload) => change({ payload })} />
          <${Select} id="model-answer" label="The model’s answer is" value=${given.model_answer} options=${MODEL_ANSWERS} onChange=${(/** @type {any} */ shown) => change({ model_answer: shown })} />
          <${Timer} timer=${given.timer} resources=${Object.keys(policy.budget)} onChange=${(/** @type {ReviewDocument["timer"]} */ timer) => change({ timer })} />
          <${Rule} rule=${given.reward_rule} onChange=${(/** @type {ReviewDocument["reward_rule"]} */ rule) => change({ reward_rule: rule })} />
        </div>
      </div>
      <aside class="preview" aria-label="Preview">
        <p class="small muted strong">Preview for reviewers</p>
        <${ReviewForm} form=${given.form} values=${values} problems=${{}} onChange=${setValues} onAnswer=${setValues} />
      </aside>
    </div>
    <${SaveButton} changed=${JSON.stringify(given) !== JSON.stringify(saved)} onSave=${save} onUndo=${() => setGiven(saved)} />
  </section>`;
}

/** @param {{ id: string, label: string, value: string, options: [string, string][], onChange: (value: string) => void }} props */
export function Select({ id, label, value, options, onChange }) {
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <select id=${id} value=${value} onChange=${(/** @type {Event} */ event) => onChange(/** @type {HTMLSelectElement} */ (event.target).value)}>
      ${options.map(([each, text]) => html`<option value=${each} selected=${each === value}>${text}</option>`)}
    </select>
  </div>`;
}

/** @param {{ timer: NonNullable<ReviewDocument["timer"]> | null, resources: string[], onChange: (timer: ReviewDocument["timer"]) => void }} props */
function Timer({ timer, resources, onChange }) {
  /** @type {[string, string][]} */
  const options = [["", "not timed"], ...resources.map((each) => /** @type {[string, string]} */ ([each, `counts ${each}`]))];
  return html`<${Select}
      id="timer"
      label="Time spent on a task"
      value=${timer?.resource ?? ""}
      options=${options}
      onChange=${(/** @type {string} */ resource) => onChange(resource ? { resource, unit_s: timer?.unit_s ?? 60 } : null)}
    />
    ${timer &&
    html`<div class="field">
      <label for="timer-unit">Seconds in one of ${timer.resource}</label>
      <input
        id="timer-unit"
        type="number"
        min="0"
        step="any"
        value=${timer.unit_s}
        onChange=${(/** @type {Event} */ event) => {
          const seconds = Number(/** @type {HTMLInputElement} */ (event.target).value);
          if (seconds > 0) onChange({ ...timer, unit_s: seconds });
        }}
      />
    </div>`}`;
}

/** @param {{ rule: NonNullable<ReviewDocument["reward_rule"]> | null, onChange: (rule: ReviewDocument["reward_rule"]) => void }} props */
function Rule({ rule, onChange }) {
  if (rule?.kind === "table")
    return html`<p class="field"><span class="label">Rewards</span><span class="help">by a table, which is set over HTTP</span></p>`;
  return html`<${Select}
    id="reward-rule"
    label="Reward of a decider"
    value=${rule?.kind ?? ""}
    options=${RULES}
    onChange=${(/** @type {string} */ kind) => onChange(kind === "match" ? { kind } : null)}
  />`;
}
