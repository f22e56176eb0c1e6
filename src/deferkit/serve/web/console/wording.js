// Where a policy stands, in words. Each function takes a `Standing` and returns a phrase or a sentence.

import { ago, amount, clock, number } from "../format.js";

/** @typedef {"good" | "warn" | "bad" | ""} Tone */

const SLOW = 0.9;
const FAST = 1.1;
// alarms while which nobody is asked
/** @type {Partial<Record<Api.Alarm["kind"], string>>} */
export const STOPPED = { suspense: "Frozen", frozen: "Frozen", failing: "Failing", without_budget: "Budget spent" };

/**
 * One unit of a resource: `minute` of `minutes`, `unit of cost` of `cost`.
 * @param {string} resource
 */
export function oneOf(resource) {
  return /[^s]s$/.test(resource) ? resource.slice(0, -1) : `unit of ${resource}`;
}

/**
 * What rewards are counted in: right answers if a reward is from 0 to 1.
 * @param {{ reward_range: [number, number] }} policy
 */
export function rewardUnit({ reward_range: range }) {
  return range[0] === 0 && range[1] === 1 ? "right answers" : "reward";
}

/**
 * Whether spending keeps to its plan.
 * @param {Api.Standing} standing
 * @returns {{ text: string, tone: Tone }}
 */
export function pace(standing) {
  const stopped = standing.alarms.find((alarm) => alarm.kind in STOPPED);
  if (stopped) return { text: STOPPED[stopped.kind] ?? "", tone: "bad" };
  if (standing.alarms.some((alarm) => alarm.kind === "horizon_over")) return { text: "Plan is over", tone: "warn" };
  if (standing.pace === null) return { text: standing.decisions ? "No plan" : "No decisions yet", tone: "" };
  if (standing.pace < SLOW) return { text: "Behind plan", tone: "warn" };
  if (standing.pace > FAST) return { text: "Ahead of plan", tone: "warn" };
  return { text: "On plan", tone: "good" };
}

/**
 * How urgent a policy is: 2 while nobody is asked, 1 with another alarm, else 0.
 * @param {Api.Standing} standing
 */
export function urgency({ alarms }) {
  return alarms.some((alarm) => alarm.kind in STOPPED) ? 2 : Number(alarms.length > 0);
}

/**
 * Status in one sentence, unless an alarm says the same.
 * @param {Api.Standing} standing
 */
export function stateText({ state, alarms }) {
  return alarms.some((alarm) => alarm.text === state) ? "" : state;
}

/**
 * What would make a policy ask more, if it asks less than planned: what follows the reason in its remark.
 * @param {{ remark?: string }} standing
 */
export function remedy({ remark = "" }) {
  const end = remark.indexOf(". ");
  return end < 0 ? "" : remark.slice(end + 2).replaceAll("`", "");
}

/**
 * When the budget runs out: a phrase and what to add to it.
 * @param {Api.Standing} standing
 * @returns {{ text: string, note: string }}
 */
export function runsOut(standing) {
  const account = standing.budget[standing.unit];
  if (!account || account.total === null || account.free === null) return { text: "Never", note: "no limit is set" };
  if (account.free <= 0) return { text: "Now", note: "nothing is free" };
  if (account.period) return periodEnd(account.period, standing.runs_out_at);
  const { horizon, runs_out_task: last } = standing;
  if (horizon !== null && last !== null && last >= horizon)
    return { text: "It lasts", note: `for all ${number(horizon)} planned tasks` };
  if (standing.runs_out_at === null) return { text: "Not in sight", note: `${amount(account.free, standing.unit)} free` };
  const task = last === null ? "" : `, task ${number(last)}`;
  return { text: clock(standing.runs_out_at), note: `${ago(standing.runs_out_at)}${task}` };
}

/**
 * When what a period has runs out, if that is before its end.
 * @param {Api.PeriodState} period
 * @param {number | null} at
 */
function periodEnd({ end, renews, over }, at) {
  const when = `${over ? "ended" : renews ? "renewed" : "ends"} ${clock(end)}`;
  if (over || at === null || at >= end) return { text: over ? "It is over" : "It lasts", note: when };
  return { text: clock(at), note: when };
}

/**
 * What one more unit brings now, as a sentence.
 * @param {Api.Standing} standing
 */
export function nextUnit(standing) {
  const { next_unit: brings, unit } = standing;
  if (brings === null) return `What the next ${oneOf(unit)} brings is not known yet.`;
  if (brings === 0) return `The next ${oneOf(unit)} brings nothing: there is enough budget.`;
  return `The next ${oneOf(unit)} brings about ${number(Number(brings.toPrecision(2)))} ${rewardUnit(standing)}.`;
}

/**
 * A value with its standard error: `34.2 ± 5.1`.
 * @param {{ value: number, error: number | null }} found
 */
export function withError({ value, error }) {
  if (error === null || !Number.isFinite(error) || error <= 0) return number(value);
  const digits = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(error))));
  const write = (/** @type {number} */ each) =>
    each.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace(/^-/, "−");
  return `${write(value)} ± ${write(error)}`;
}

/**
 * What a gain rests on.
 * @param {Api.GainState} gain
 */
export function gainBasis(gain) {
  if (gain.basis === "observed") return "observed";
  if (gain.basis === "estimated") return "estimated";
  return gain.basis;
}

/** The states of a decision, as people say them. */
export const STATES = { model: "model decided", open: "waiting", posted: "settled", void: "given up" };

/**
 * @param {string} state
 * @returns {{ text: string, tone: Tone }}
 */
export function stateOf(state) {
  const text = STATES[/** @type {keyof typeof STATES} */ (state)] ?? state;
  return { text, tone: state === "posted" ? "good" : state === "open" ? "warn" : "" };
}
