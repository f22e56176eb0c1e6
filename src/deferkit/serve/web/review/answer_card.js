// The answer to the task at the desk: form, cost, sending, declining.

import { html, useState } from "../dom.js";
import { amount } from "../format.js";
import { answerOf, modelAnswerText, problemsOf } from "./answers.js";
import { Cost } from "./cost.js";
import { answersAtOnce, chosen, fieldForKeys, optionsOf, ReviewForm } from "./form.js";
import { useKeys } from "./keys.js";

/** @typedef {import("./desk.js").Desk} Desk */

/**
 * @param {object} props
 * @param {Desk} props.desk
 * @param {{ undo: () => void, help: () => void, guidelines: () => void, decline: () => void }} props.actions
 */
export function AnswerCard({ desk, actions }) {
  const { form, model_answer: visibility } = desk.settings.review;
  const [problems, setProblems] = useState(/** @type {Record<string, string>} */ ({}));
  const [cleared, setCleared] = useState(/** @type {Review.Values | null} */ (null));
  const atOnce = answersAtOnce(form);

  const change = (/** @type {Review.Values} */ values) => {
    setProblems({});
    setCleared(null);
    desk.setValues(values);
  };
  const clear = () => {
    const before = desk.values;
    change({});
    if (Object.values(before).some((value) => value !== "" && value !== undefined)) setCleared(before);
  };
  const send = (/** @type {Review.Values} */ values) => {
    const found = problemsOf(form, values);
    setProblems(found);
    const wrong = Object.keys(found)[0];
    if (wrong !== undefined) return focusField(wrong);
    desk.setValues(values);
    desk.submit(answerOf(form, values));
  };
  const choose = (/** @type {number} */ index) => {
    const field = fieldForKeys(form, desk.values);
    const option = field && optionsOf(field)[index];
    if (!field || !option || desk.lost) return;
    const values = chosen(field, desk.values, option.value);
    if (atOnce) return send(values);
    change(values);
    focusOption(field, index);
  };
  const undo = () => (cleared ? change(cleared) : actions.undo());
  useKeys({ ...actions, undo, choose, submit: () => !desk.lost && send(desk.values), clear });

  if (desk.lost) return html`<${LostTask} desk=${desk} />`;
  /** @param {Event} event */
  const submitted = (event) => {
    event.preventDefault();
    send(desk.values);
  };
  const model = visibility === "shown" ? modelAnswerText(form, desk.claim?.model_answer) : "";
  return html`<form class="card stack answer-card" onSubmit=${submitted} noValidate>
    ${model && html`<p class="notice small">The model answers: <strong dir="auto">${model}</strong></p>`}
    <${ReviewForm} form=${form} values=${desk.values} problems=${problems} onChange=${change} onAnswer=${send} />
    ${cleared &&
    html`<p class="row small" role="status">
      The answer was cleared.
      <button type="button" class="button small" onClick=${undo} aria-keyshortcuts="U">Restore <kbd aria-hidden="true">U</kbd></button>
    </p>`}
    <${Cost} desk=${desk} />
    <div class="row">
      ${!atOnce && html`<button class="button primary">${desk.correcting ? "Correct" : "Answer"} <kbd aria-hidden="true">Enter</kbd></button>`}
      ${desk.correcting
        ? html`<button type="button" class="button" onClick=${() => desk.leave()}>Leave it as it was</button>`
        : html`<button type="button" class="button small" onClick=${actions.decline}>Decline <kbd aria-hidden="true">D</kbd></button>`}
    </div>
  </form>`;
}

/** @param {{ desk: Desk }} props */
function LostTask({ desk }) {
  const { unit } = desk.settings;
  const cost = desk.proposedCost;
  const book = () => {
    desk.bookEffort();
    desk.leave();
  };
  return html`<section class="card stack" role="alert">
    <h2>This task cannot be answered any more</h2>
    <p class="muted">${desk.lost}</p>
    <div class="row">
      ${unit && cost !== null && !desk.paid && html`<button type="button" class="button primary" onClick=${book}>Book the effort: ${amount(cost, unit)}</button>`}
      <button type="button" class="button" onClick=${() => desk.leave()}>Next task</button>
    </div>
  </section>`;
}

/** @param {string} name */
function focusField(name) {
  fieldControls(name)[0]?.focus();
}

/**
 * Move the focus to the option that a key has chosen: if the focus is within the field, and for a field with several
 * choices always, so that the next key chooses in the same field.
 * @param {Review.FormField} field
 * @param {number} index
 */
function focusOption(field, index) {
  const controls = fieldControls(field.name);
  if (field.kind === "choices" || controls.some((each) => each === document.activeElement)) controls[index]?.focus();
}

/**
 * @param {string} name
 * @returns {HTMLElement[]}
 */
function fieldControls(name) {
  return [...document.querySelectorAll(`[data-field="${CSS.escape(name)}"] :is(input, textarea, button)`)].filter(
    (each) => each instanceof HTMLElement,
  );
}
