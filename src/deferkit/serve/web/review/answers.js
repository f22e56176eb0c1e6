// Answers: from what was entered to what is sent, and what is wrong with it.

/**
 * Whether nothing was entered for a field.
 * @param {unknown} value
 */
function blank(value) {
  if (typeof value === "string") return value.trim() === "";
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
}

/**
 * The answer that is sent: fields that were filled in, numbers as numbers.
 * @param {Review.FormField[]} form
 * @param {Review.Values} values
 * @returns {Review.Values}
 */
export function answerOf(form, values) {
  const filled = form.filter(({ name }) => !blank(values[name]));
  return Object.fromEntries(
    filled.map(({ name, kind }) => [name, kind === "number" ? Number(values[name]) : values[name]]),
  );
}

/**
 * What is wrong, by field; empty if the answer can be sent.
 * @param {Review.FormField[]} form
 * @param {Review.Values} values
 * @returns {Record<string, string>}
 */
export function problemsOf(form, values) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const field of form) {
    const problem = problemOf(field, values[field.name]);
    if (problem) found[field.name] = problem;
  }
  return found;
}

/**
 * `min` and `max` bound a number, the length of a text, or how many options are chosen.
 * @param {Review.FormField} field
 * @param {unknown} value
 */
function problemOf({ kind, required = true, min, max }, value) {
  if (blank(value)) return required ? "An answer is needed." : "";
  const size = kind === "number" ? Number(value) : String(value).length;
  const n = Array.isArray(value) ? value.length : size;
  if (!Number.isFinite(n)) return "A number is needed.";
  const of = { text: " characters", choices: " choices" }[/** @type {string} */ (kind)] ?? "";
  if (typeof min === "number" && n < min) return `At least ${min}${of}.`;
  if (typeof max === "number" && n > max) return `At most ${max}${of}.`;
  return "";
}

/**
 * An answer in a few words: labels of options, yes and no.
 * @param {Review.FormField[]} form
 * @param {Review.Values} answer
 */
export function answerText(form, answer) {
  const given = form.filter(({ name }) => name in answer);
  const text = given.map((field) => valueText(field, answer[field.name])).join(" · ");
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

/**
 * @param {Review.FormField} field
 * @param {unknown} value
 * @returns {string}
 */
function valueText(field, value) {
  if (Array.isArray(value)) return value.map((each) => valueText(field, each)).join(", ");
  if (typeof value === "boolean") return value ? "yes" : "no";
  return field.options?.find((option) => option.value === value)?.label ?? String(value);
}

/**
 * The model's answer in a few words, with the labels of the form where it has them.
 * @param {Review.FormField[]} form
 * @param {unknown} answer A plain value, or an object like a reviewer's answer.
 */
export function modelAnswerText(form, answer) {
  const [first] = form;
  if (!first || answer === null || answer === undefined) return "";
  if (typeof answer !== "object" || Array.isArray(answer)) return valueText(first, answer);
  const known = answerText(form, /** @type {Review.Values} */ (answer));
  return known || JSON.stringify(answer);
}
