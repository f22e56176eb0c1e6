// The lines that send a task: for a shell and for Python.

/** @typedef {{ task: string, context: unknown, payload?: unknown, model_answer?: unknown }} Task */

/**
 * A curl command.
 * @param {string} origin Of the service.
 * @param {string} policy
 * @param {Task} task
 * @param {boolean} keyed Whether calls need a key.
 */
export function curlLines(origin, policy, task, keyed) {
  const body = JSON.stringify(task, null, 1).replace(/'/g, "'\\''");
  const lines = [
    `curl -s ${origin}/v1/policies/${encodeURIComponent(policy)}/decisions`,
    ...(keyed ? ['-H "authorization: Bearer $DEFERKIT_KEY"'] : []),
    "-H 'content-type: application/json'",
    `-d '${body}'`,
  ];
  return lines.join(" \\\n  ");
}

/**
 * A context with the features of a policy.
 * @param {Api.PolicySpec["features"]} features
 */
export function exampleContext(features) {
  if (typeof features === "number") return Array(features).fill(0.5);
  const levels = Object.entries(features.categories ?? {}).map(([name, given]) => [name, Array.isArray(given) ? given[0] : "a"]);
  return Object.fromEntries([...(features.numbers ?? []).map((name) => [name, 1.5]), ...levels]);
}

/**
 * A Python program.
 * @param {string} origin
 * @param {string} policy
 * @param {Task} task
 * @param {boolean} keyed
 */
export function pythonLines(origin, policy, task, keyed) {
  const key = keyed ? ', key=os.environ["DEFERKIT_KEY"]' : "";
  return `${keyed ? "import os\n\n" : ""}from deferkit import Client

with Client(${pythonOf(origin)}, policy=${pythonOf(policy)}${key}) as client:
    decision = client.decide(
        ${pythonOf(task.context)},
        task=${pythonOf(task.task)},
        payload=${pythonOf(task.payload)},
        model_answer=${pythonOf(task.model_answer)},
    )
    print(decision.route)  # "model", or the expert whose reviewers are asked`;
}

/**
 * A JSON value as Python writes it.
 * @param {unknown} value
 * @returns {string}
 */
export function pythonOf(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return JSON.stringify(value).replace(/[\u007f-\u009f\u2028\u2029]/g, escaped);
  if (Array.isArray(value)) return `[${value.map(pythonOf).join(", ")}]`;
  if (typeof value !== "object") return String(value);
  return `{${Object.entries(value).map(([name, each]) => `${pythonOf(name)}: ${pythonOf(each)}`).join(", ")}}`;
}

/** @param {string} character */
function escaped(character) {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
