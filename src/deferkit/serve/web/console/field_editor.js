// One field of a review form, being edited.

import { html } from "../dom.js";

/** @typedef {Api.FormField} FormField */

/** @type {[FormField["kind"], string][]} */
const KINDS = [
  ["choice", "one of several"],
  ["choices", "several of them"],
  ["boolean", "yes or no"],
  ["number", "number"],
  ["text", "text"],
];

/**
 * A field to begin with, under a name that no other has.
 * @param {FormField[]} form
 * @returns {FormField}
 */
export function newField(form) {
  let n = form.length + 1;
  while (form.some((field) => field.name === `field_${n}`)) n += 1;
  return { name: `field_${n}`, kind: "text", label: "", options: [], required: false, min: null, max: null, help: "" };
}

/**
 * The field with another kind, without what only the old kind has.
 * @param {FormField} field
 * @param {FormField["kind"]} kind
 * @returns {FormField}
 */
function ofKind(field, kind) {
  const chosen = kind === "choice" || kind === "choices";
  const options = chosen ? (field.options.length ? field.options : optionsOf("yes\nno")) : [];
  return { ...field, kind, options, min: null, max: null };
}

/**
 * @param {string} text One option a line: `value`, or `value: label`.
 * @returns {Api.FormOption[]}
 */
function optionsOf(text) {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => {
      const [value = "", ...label] = line.split(":");
      return { value: value.trim(), label: label.join(":").trim() || null };
    });
}

/**
 * @param {object} props
 * @param {number} props.place
 * @param {FormField} props.field
 * @param {boolean} props.last Whether it is the only one, which must stay.
 * @param {(field: FormField) => void} props.onChange
 * @param {() => void} props.onRemove
 */
export function FieldEditor({ place, field, last, onChange, onRemove }) {
  const id = `edit-${place}`;
  const chosen = field.kind === "choice" || field.kind === "choices";
  /** @param {Event} event */
  const text = (event) => /** @type {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} */ (event.target).value;
  return html`<fieldset class="field-editor stack tight">
    <legend class="row spread">
      <span class="strong">Field ${place + 1}</span>
      ${!last && html`<button type="button" class="button small quiet" aria-label=${`Remove field ${place + 1}`} onClick=${onRemove}>Remove</button>`}
    </legend>
    <div class="field-row">
      <div class="field">
        <label for=${`${id}-label`}>Question</label>
        <input id=${`${id}-label`} value=${field.label} onInput=${(/** @type {Event} */ event) => onChange({ ...field, label: text(event) })} />
      </div>
      <div class="field">
        <label for=${`${id}-kind`}>Answer</label>
        <select id=${`${id}-kind`} value=${field.kind} onChange=${(/** @type {Event} */ event) => onChange(ofKind(field, /** @type {FormField["kind"]} */ (text(event))))}>
          ${KINDS.map(([kind, name]) => html`<option value=${kind} selected=${kind === field.kind}>${name}</option>`)}
        </select>
      </div>
      <div class="field">
        <label for=${`${id}-name`}>Name in data</label>
        <input id=${`${id}-name`} value=${field.name} onChange=${(/** @type {Event} */ event) => onChange({ ...field, name: text(event).trim() })} />
      </div>
    </div>
    ${chosen &&
    html`<div class="field">
      <label for=${`${id}-options`}>Options, one a line</label>
      <textarea
        id=${`${id}-options`}
        rows="4"
        value=${field.options.map((each) => (each.label ? `${each.value}: ${each.label}` : each.value)).join("\n")}
        aria-describedby=${`${id}-options-help`}
        onChange=${(/** @type {Event} */ event) => onChange({ ...field, options: optionsOf(text(event)) })}
      ></textarea>
      <p class="help" id=${`${id}-options-help`}>As <code>value</code> or <code>value: what reviewers read</code>.</p>
    </div>`}
    <label class="check">
      <input
        type="checkbox"
        checked=${field.required}
        onChange=${(/** @type {Event} */ event) => onChange({ ...field, required: /** @type {HTMLInputElement} */ (event.target).checked })}
      />
      Must be answered
    </label>
  </fieldset>`;
}
