// The form of a policy's review document. Native controls with labels; hints of the keys that choose.

import { classes, html, useState } from "../dom.js";

/** @typedef {{ value: unknown, label: string }} Option */

const MAX_KEYS = 9;

/**
 * Options that keys can choose from.
 * @param {Review.FormField} field
 * @returns {Option[]}
 */
export function optionsOf(field) {
  if (field.kind === "boolean") return [{ value: true, label: "Yes" }, { value: false, label: "No" }];
  return (field.options ?? []).map(({ value, label }) => ({ value, label: label || value }));
}

/**
 * Whether choosing an option is the whole answer: a form of one question.
 * @param {Review.FormField[]} form
 */
export function answersAtOnce(form) {
  return form.length === 1 && (form[0]?.kind === "choice" || form[0]?.kind === "boolean");
}

/**
 * The field that keys choose for: the one with the focus, else the first without an answer, else the last.
 * @param {Review.FormField[]} form
 * @param {Review.Values} values
 */
export function fieldForKeys(form, values) {
  const fields = form.filter((field) => optionsOf(field).length);
  const focused = focusedField();
  return (
    fields.find(({ name }) => name === focused) ??
    fields.find(({ name }) => values[name] === undefined) ??
    fields[fields.length - 1]
  );
}

function focusedField() {
  return document.activeElement?.closest("[data-field]")?.getAttribute("data-field") ?? "";
}

/**
 * What is entered once an option was chosen.
 * @param {Review.FormField} field
 * @param {Review.Values} values
 * @param {unknown} option
 * @returns {Review.Values}
 */
export function chosen(field, values, option) {
  if (field.kind !== "choices") return { ...values, [field.name]: option };
  const before = Array.isArray(values[field.name]) ? /** @type {unknown[]} */ (values[field.name]) : [];
  const order = optionsOf(field).map(({ value }) => value);
  const after = before.includes(option) ? before.filter((each) => each !== option) : [...before, option];
  return { ...values, [field.name]: order.filter((value) => after.includes(value)) };
}

/**
 * The fields of a form. A single choice is drawn as buttons that answer at once.
 * @param {object} props
 * @param {Review.FormField[]} props.form
 * @param {Review.Values} props.values
 * @param {Record<string, string>} props.problems What is wrong, by field.
 * @param {(values: Review.Values) => void} props.onChange
 * @param {(values: Review.Values) => void} props.onAnswer A single question was answered.
 * @param {boolean} [props.disabled]
 */
export function ReviewForm({ form, values, problems, onChange, onAnswer, disabled = false }) {
  const [, setFocused] = useState("");
  const focus = () => setFocused(focusedField()); // hints are at the field that keys choose for
  const keyed = fieldForKeys(form, values)?.name;
  if (answersAtOnce(form) && form[0]) {
    return html`<${ChoiceButtons} field=${form[0]} values=${values} onAnswer=${onAnswer} disabled=${disabled} />`;
  }
  return html`<fieldset class="stack" disabled=${disabled} onfocusin=${focus} onfocusout=${focus}>
    <legend class="visually-hidden">Your answer</legend>
    ${form.map(
      (field) => html`<${Field} key=${field.name} field=${field} values=${values} wrong=${problems[field.name] ?? ""}
        hints=${field.name === keyed} onChange=${onChange} />`,
    )}
  </fieldset>`;
}

/** @param {{ field: Review.FormField, values: Review.Values, onAnswer: (values: Review.Values) => void, disabled: boolean }} props */
function ChoiceButtons({ field, values, onAnswer, disabled }) {
  return html`<fieldset class="field" disabled=${disabled} data-field=${field.name}>
    <legend>${field.label || field.name}</legend>
    ${field.help && html`<p class="help">${field.help}</p>`}
    <div class="choice-buttons">
      ${optionsOf(field).map(
        ({ value, label }, index) => html`<button type="button" class=${classes("choice", values[field.name] === value && "chosen")}
          aria-keyshortcuts=${index < MAX_KEYS ? String(index + 1) : null}
          onClick=${() => onAnswer(chosen(field, values, value))}>
          <span dir="auto">${label}</span>${index < MAX_KEYS && html`<kbd aria-hidden="true">${index + 1}</kbd>`}
        </button>`,
      )}
    </div>
  </fieldset>`;
}

/**
 * @param {object} props
 * @param {Review.FormField} props.field
 * @param {Review.Values} props.values
 * @param {string} props.wrong
 * @param {boolean} props.hints
 * @param {(values: Review.Values) => void} props.onChange
 */
function Field({ field, values, wrong, hints, onChange }) {
  const id = `field-${field.name}`;
  const described = [field.help && `${id}-help`, wrong && `${id}-wrong`].filter(Boolean).join(" ") || null;
  const label = html`${field.label || field.name}${field.required === false && html` <span class="muted">(optional)</span>`}`;
  const notes = html`${field.help && html`<p class="help" id="${id}-help">${field.help}</p>`}
    ${wrong && html`<p class="wrong" id="${id}-wrong">${wrong}</p>`}`;
  if (optionsOf(field).length) {
    return html`<fieldset class="field" data-field=${field.name} aria-describedby=${described}>
      <legend>${label}</legend>
      <${Options} field=${field} values=${values} hints=${hints} onChange=${onChange} />
      ${notes}
    </fieldset>`;
  }
  const value = values[field.name] ?? "";
  const changed = (/** @type {any} */ event) => onChange({ ...values, [field.name]: event.target.value });
  const shared = { id, value, onInput: changed, "aria-describedby": described, "aria-invalid": wrong ? "true" : null };
  return html`<div class="field" data-field=${field.name}>
    <label for=${id}>${label}</label>
    ${field.kind === "number"
      ? html`<input type="number" step="any" min=${field.min ?? null} max=${field.max ?? null} ...${shared} />`
      : html`<textarea rows="3" dir="auto" ...${shared}></textarea>`}
    ${notes}
  </div>`;
}

/** @param {{ field: Review.FormField, values: Review.Values, hints: boolean, onChange: (values: Review.Values) => void }} props */
function Options({ field, values, hints, onChange }) {
  const several = field.kind === "choices";
  const current = values[field.name];
  return html`<div class="options">
    ${optionsOf(field).map(({ value, label }, index) => {
      const on = several ? Array.isArray(current) && current.includes(value) : current === value;
      return html`<label class=${classes("option", on && "chosen")}>
        <input type=${several ? "checkbox" : "radio"} name=${`field-${field.name}`} checked=${on}
          onChange=${() => onChange(chosen(field, values, value))} />
        <span dir="auto">${label}</span>${hints && index < MAX_KEYS && html`<kbd aria-hidden="true">${index + 1}</kbd>`}
      </label>`;
    })}
  </div>`;
}
