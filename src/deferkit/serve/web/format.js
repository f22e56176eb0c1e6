// Numbers, amounts and times as people read them.

const PLAIN = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const NOTHING = "–";

/**
 * A number with at most four significant digits, whole ones in full.
 * @param {number | null | undefined} value
 */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const text = (Math.abs(value) >= 1000 ? WHOLE : PLAIN).format(value);
  return text.replace(/^-/, "−");
}

/**
 * An amount of an account in full: to the micro-unit, so that sums add up on sight.
 * @param {number} value
 */
export function exact(value) {
  return value.toLocaleString("en", { maximumFractionDigits: 6 }).replace(/^-/, "−");
}

/**
 * An amount with its unit: `12.5 minutes`.
 * @param {number | null | undefined} value
 * @param {string} [unit] A resource, as the policy names it.
 */
export function amount(value, unit = "") {
  return unit && value !== null && value !== undefined ? `${number(value)} ${unit}` : number(value);
}

/**
 * Amounts by resource in one line.
 * @param {number | Record<string, number> | null | undefined} value
 * @param {string} [unit] Of a plain number.
 */
export function amounts(value, unit = "") {
  if (value === null || value === undefined || typeof value === "number") return amount(value, unit);
  return Object.entries(value).map(([resource, each]) => amount(each, resource)).join(", ") || NOTHING;
}

/**
 * A share as a percentage.
 * @param {number | null | undefined} share
 */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return NOTHING;
  const hundred = 100 * share;
  const digits = hundred !== 0 && Math.abs(hundred) < 10 ? 1 : 0;
  return `${hundred.toFixed(digits).replace(/^-/, "−")} %`;
}

/**
 * How long something took or takes: `8 s`, `3 min 20 s`, `2 h 5 min`, `3 days`.
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NOTHING;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 48 * 3600) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return `${number(Math.round(whole / 86400))} days`;
}

/**
 * @param {number} large
 * @param {string} unit
 * @param {number} small
 * @param {string} part
 */
function two(large, unit, small, part) {
  return small ? `${large} ${unit} ${small} ${part}` : `${large} ${unit}`;
}

/**
 * How long ago a time is, or how far ahead.
 * @param {number | null | undefined} time Seconds since 1970.
 * @param {number} [now]
 */
export function ago(time, now = Date.now() / 1000) {
  if (time === null || time === undefined) return NOTHING;
  const passed = now - time;
  if (Math.abs(passed) < 1.5) return "now";
  return passed > 0 ? `${duration(passed)} ago` : `in ${duration(-passed)}`;
}

/**
 * The time of day; with the date unless it is today.
 * @param {number | null | undefined} time Seconds since 1970.
 */
export function clock(time) {
  if (time === null || time === undefined) return NOTHING;
  const at = new Date(1000 * time);
  const hours = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (at.toDateString() === new Date().toDateString()) return hours;
  const near = Math.abs(Date.now() - at.getTime()) < 300 * 86_400_000;
  const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...(near ? {} : { year: "numeric" }) });
  return `${day}, ${hours}`;
}

/**
 * A count with its noun: `1 task`, `12 tasks`.
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export function counted(n, one, many = `${one}s`) {
  return `${number(n)} ${n === 1 ? one : many}`;
}

/**
 * A number as `number` writes it, or as a person types it: `1,000`, `1,000.5`, `−20`. Null where a comma could be a
 * decimal point (`12,5`) and for anything else.
 * @param {string} text
 */
export function parseNumber(text) {
  const typed = text.trim().replace(/[\u2212\u2013]/, "-").replace(/[\s\u00a0\u202f](?=\d{3}(\D|$))/g, ",");
  if (!/^[+-]?(\d+|\d{1,3}(,\d{3})+)?(\.\d+)?$/.test(typed) || !/\d/.test(typed)) return null;
  const value = Number(typed.replaceAll(",", ""));
  return Number.isFinite(value) ? value : null;
}

const SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(" ");
const TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ");
/** @type {[number, string][]} */
const GROUPS = [[1e9, "billion"], [1e6, "million"], [1e3, "thousand"], [100, "hundred"]];

/**
 * A number from 0 to 10¹² in words: `one thousand two hundred point five`. Beyond that, and with more than six
 * decimals, its digits.
 * @param {number} value
 * @returns {string}
 */
export function inWords(value) {
  const [whole = "", decimals = ""] = String(value).split(".");
  if (!/^\d+$/.test(whole) || value >= 1e12 || !/^\d{0,6}$/.test(decimals)) return number(value);
  const digits = [...decimals].map((digit) => SMALL[Number(digit)]).join(" ");
  return digits ? `${wholeInWords(Number(whole))} point ${digits}` : wholeInWords(Number(whole));
}

/**
 * @param {number} value
 * @returns {string}
 */
function wholeInWords(value) {
  if (value < 20) return SMALL[value] ?? "";
  const group = GROUPS.find(([size]) => value >= size);
  if (!group) return `${TENS[Math.floor(value / 10) - 2]}${value % 10 ? `-${SMALL[value % 10]}` : ""}`;
  const [size, name] = group;
  const rest = value % size;
  return `${wholeInWords(Math.floor(value / size))} ${name}${rest ? ` ${wholeInWords(rest)}` : ""}`;
}
