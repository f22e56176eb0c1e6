// A table from a CSV file, as far as its first rows tell.

const READ_BYTES = 1_000_000;
const ROWS = 500;
const MAX_LEVELS = 30;
const DELIMITERS = [",", ";", "\t", "|"];

/**
 * Read the columns of a file; throws if it has no header and no row.
 * @param {File} file
 * @returns {Promise<NewPolicy.Column[]>}
 */
export async function readColumns(file) {
  const bytes = await file.slice(0, READ_BYTES).arrayBuffer();
  const whole = file.size <= READ_BYTES;
  const rows = parseRows(decoded(bytes), whole);
  const [header, ...body] = rows;
  if (!header || !body.length) throw new Error("The file needs a header and at least one row.");
  const names = header.map((name, index) => name.trim() || `column_${index + 1}`);
  return names.map((name, index) => columnOf(name, body.map((row) => (row[index] ?? "").trim())));
}

/** @param {ArrayBuffer} bytes */
function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true }); // a character may be cut at the end
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/**
 * The rows of a text, with quotes as in RFC 4180.
 * @param {string} text
 * @param {boolean} whole Whether the text ends where the file does; else its last row may be cut.
 * @returns {string[][]}
 */
export function parseRows(text, whole = true) {
  const delimiter = delimiterOf(text);
  /** @type {string[][]} */
  const rows = [];
  /** @type {string[]} */
  let row = [];
  let value = "";
  let quoted = false;
  const endRow = () => {
    row.push(value);
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
    value = "";
  };
  for (let at = 0; at < text.length && rows.length <= ROWS; at += 1) {
    const character = text[at];
    if (quoted) {
      if (character !== '"') value += character;
      else if (text[at + 1] === '"') {
        value += '"';
        at += 1;
      } else quoted = false;
    } else if (character === '"' && value === "") quoted = true;
    else if (character === delimiter) {
      row.push(value);
      value = "";
    } else if (character === "\n") endRow();
    else if (character !== "\r") value += character;
  }
  if (whole && rows.length <= ROWS) endRow();
  return rows;
}

/** @param {string} text */
function delimiterOf(text) {
  const line = text.slice(0, text.search(/\r?\n|$/));
  const counts = DELIMITERS.map((each) => line.split(each).length);
  return DELIMITERS[counts.indexOf(Math.max(...counts))] ?? ",";
}

/**
 * @param {string} name
 * @param {string[]} values
 * @returns {NewPolicy.Column}
 */
function columnOf(name, values) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const value of values) if (value !== "") counts.set(value, (counts.get(value) ?? 0) + 1);
  const levels = [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => value);
  return { name, values, levels, use: guessedUse(name, values, levels) };
}

// words of columns that are known only after a decision: a feature of these would leak the answer
const RESULTS = new Set("reward rewards cost costs correct right".split(" "));
const ANSWERS = new Set("label labels truth target human expert reviewer reviewed outcome gold minutes seconds duration".split(" "));
const MODELS = new Set(["model", "prediction", "predicted", "pred"]);
// words of what a model says about its answer, which is a feature
const CONFIDENCES = new Set("confidence score scores probability prob margin entropy uncertainty logit".split(" "));

/** @param {string} name */
function wordsOf(name) {
  return name.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().split(/[^a-z0-9]+/).filter(Boolean);
}

/**
 * Whether a column's name says that its values are known only after the decision, such as `human_label` or `cost`.
 * @param {string} name
 */
export function isKnownAfterwards(name) {
  const words = wordsOf(name);
  return words.some((word) => RESULTS.has(word) || (ANSWERS.has(word) && !MODELS.has(words[0] ?? "")));
}

/**
 * @param {string} name
 * @param {string[]} values
 * @param {string[]} levels
 * @returns {NewPolicy.Use}
 */
function guessedUse(name, values, levels) {
  const given = values.filter((value) => value !== "");
  if (!given.length) return "unused";
  if (/(^|[_\s-])(id|key|uuid)$/i.test(name) && levels.length === given.length) return "task";
  const words = wordsOf(name);
  if (isKnownAfterwards(name)) return "unused";
  if (MODELS.has(words[0] ?? "") && !words.some((word) => CONFIDENCES.has(word))) return "model";
  if (given.every((value) => numberOf(value) !== null)) return "number";
  return levels.length <= MAX_LEVELS && levels.length <= given.length / 2 ? "category" : "shown";
}

/**
 * A value as a number; null if it is none. A decimal comma is understood.
 * @param {string} value
 */
export function numberOf(value) {
  const text = /^-?\d+,\d+$/.test(value) ? value.replace(",", ".") : value;
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return null;
  const number = Number(text);
  return Number.isFinite(number) ? number : null;
}
