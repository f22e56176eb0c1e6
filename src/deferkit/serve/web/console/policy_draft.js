// A first policy: from what was entered to the body that creates it, and an example of a task for it.

import { numberOf } from "./csv.js";
import { exampleContext } from "./send_lines.js";

const LEVELS_AS_THEY_COME = 50;

/** @type {Record<string, string>} */
export const UNIT_SECONDS = { seconds: "1", minutes: "60", hours: "3600" };

/** @type {NewPolicy.PolicyDraft} */
export const BEGINNING = {
  name: "",
  columns: null,
  features: [{ name: "", kind: "number", levels: "" }],
  unit: "minutes",
  unitS: "60",
  limited: true,
  total: "600",
  lasts: "tasks",
  horizon: "10000",
  until: "",
  carries: false,
  stops: false,
  maxCost: "5",
  question: "What is the right answer?",
  options: "yes\nno",
  guidelines: "",
  reviewers: "1",
};

/**
 * The body that creates the policy.
 * @param {NewPolicy.PolicyDraft} draft
 */
export function policyBody(draft) {
  return {
    name: draft.name,
    features: featuresOf(draft),
    budget: { [draft.unit]: draft.limited ? budgetOf(draft) : {} },
    reviewers: Number(draft.reviewers),
    review: {
      form: [fieldOf(draft)],
      guidelines: draft.guidelines,
      timer: draft.unitS ? { resource: draft.unit, unit_s: Number(draft.unitS) } : null,
      reward_rule: { kind: "match" },
    },
  };
}

/**
 * The budget as the service takes it; days are those of this browser's time zone.
 * @param {NewPolicy.PolicyDraft} draft
 */
export function budgetOf({ total, lasts, horizon, until, carries, stops, maxCost }) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const time =
    lasts === "tasks"
      ? { horizon: Number(horizon) }
      : lasts === "until"
        ? { until: endOf(until) }
        : { every: lasts, zone, ...(carries ? { carry: 1 } : {}) };
  return { total: Number(total), ...time, max_cost: Number(maxCost), ...(stops ? { hold: "auto" } : {}) };
}

/**
 * The end of a day, in seconds since 1970.
 * @param {string} day Such as 2026-03-31.
 */
function endOf(day) {
  const end = new Date(`${day}T00:00`);
  end.setDate(end.getDate() + 1);
  return end.getTime() / 1000;
}

/** @param {NewPolicy.PolicyDraft} draft */
function fieldOf({ question, options }) {
  const values = linesOf(options);
  const named = { name: "label", label: question };
  return values.length
    ? { ...named, kind: "choice", options: values.map((value) => ({ value })) }
    : { ...named, kind: "text" };
}

/**
 * @param {NewPolicy.PolicyDraft} draft
 * @returns {{ numbers: string[], categories: Record<string, string[] | number> }}
 */
function featuresOf({ columns, features }) {
  const used = columns
    ? columns.map(({ name, use, levels }) => ({ name, kind: use, levels }))
    : features.filter(({ name }) => name.trim()).map(({ name, kind, levels }) => ({ name: name.trim(), kind, levels: listOf(levels) }));
  const categories = used.filter(({ kind }) => kind === "category");
  return {
    numbers: used.filter(({ kind }) => kind === "number").map(({ name }) => name),
    categories: Object.fromEntries(
      categories.map(({ name, levels }) => [name, levels.length ? levels.slice(0, 1000) : LEVELS_AS_THEY_COME]),
    ),
  };
}

/**
 * What is missing, as a sentence; empty if nothing is.
 * @param {NewPolicy.PolicyDraft} draft
 */
export function missingFrom(draft) {
  const { numbers, categories } = featuresOf(draft);
  const names = [...numbers, ...Object.keys(categories)];
  if (!names.length) return "At least one feature is needed.";
  if (new Set(names).size < names.length || names.length < numbers.length) return "Two features have the same name.";
  const options = linesOf(draft.options);
  if (new Set(options).size < options.length) return "Two options are the same.";
  return "";
}

/**
 * A task as it could be sent.
 * @param {NewPolicy.PolicyDraft} draft
 */
export function exampleTask(draft) {
  const options = linesOf(draft.options);
  const answer = options[0] ?? "the model's answer";
  if (!draft.columns) {
    const context = exampleContext(featuresOf(draft));
    return { task: "task-1", context, payload: { text: "Text for the reviewer" }, model_answer: answer };
  }
  const first = (/** @type {NewPolicy.Column} */ { values }) => values[0] ?? "";
  const of = (/** @type {string[]} */ ...uses) => (draft.columns ?? []).filter(({ use }) => uses.includes(use));
  const context = Object.fromEntries([
    ...of("number").map((column) => [column.name, numberOf(first(column))]),
    ...of("category").map((column) => [column.name, first(column) || null]),
  ]);
  const payload = Object.fromEntries(of("number", "category", "shown").map((column) => [column.name, first(column)]));
  const [id] = of("task").map(first);
  const [model] = of("model").map(first);
  return { task: id || "task-1", context, payload, model_answer: model || answer };
}

/** @param {string} text */
export function linesOf(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

/** @param {string} text */
function listOf(text) {
  return [...new Set(text.split(",").map((part) => part.trim()).filter(Boolean))];
}
