// The page that creates a policy: from a form, or from the header of a CSV file that is read in the browser.

import { messageOf, post } from "../api.js";
import { classes, html, useState } from "../dom.js";
import { answersAtOnce, ReviewForm } from "../review/form.js";
import { isKnownAfterwards, numberOf, readColumns } from "./csv.js";
import { BEGINNING, exampleTask, linesOf, missingFrom, policyBody, UNIT_SECONDS } from "./policy_draft.js";
import { curlLines, pythonLines } from "./send_lines.js";

/** @typedef {import("../session.js").Session} Session */
/** @typedef {(change: Partial<NewPolicy.PolicyDraft>) => void} Change */

/** @type {[NewPolicy.Use, string][]} */
const USES = [
  ["number", "number"],
  ["category", "category"],
  ["shown", "only shown"],
  ["task", "task id"],
  ["model", "model's answer"],
  ["unused", "not used"],
];

/** @type {[NewPolicy.PolicyDraft["lasts"], string][]} */
const LASTS = [
  ["tasks", "a number of tasks"],
  ["day", "every day"],
  ["week", "every week"],
  ["month", "every month"],
  ["until", "the time until a day"],
];
const RENEWS = ["day", "week", "month"];

/** @param {{ session: Session }} props */
export default function FirstPolicy({ session }) {
  const [draft, setDraft] = useState(BEGINNING);
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const [made, setMade] = useState(false);
  const change = (/** @type {Partial<NewPolicy.PolicyDraft>} */ part) => setDraft((before) => ({ ...before, ...part }));

  /** @param {Event} event */
  const create = async (event) => {
    event.preventDefault();
    const missing = missingFrom(draft);
    setWrong(missing);
    if (missing) return;
    setBusy(true);
    try {
      await post("/v1/policies", policyBody(draft));
      setMade(true);
      scrollTo(0, 0);
    } catch (error) {
      setWrong(messageOf(error));
    }
    setBusy(false);
  };
  if (made) return html`<${Made} draft=${draft} session=${session} />`;
  return html`<div class="page narrow">
    <form class="stack loose" onSubmit=${create}>
      <div class="stack tight">
        <h1>New policy</h1>
        <p class="muted">A policy decides, task by task, whether the model's answer is used or a person is asked.</p>
      </div>
      <div class="card field">
        <label for="policy-name">Name</label>
        <input id="policy-name" required maxlength="64" pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*" value=${draft.name} spellcheck="false"
          placeholder="comments" aria-describedby="policy-name-help" onInput=${given((name) => change({ name }))} />
        <p class="help" id="policy-name-help">Letters, digits, dots, hyphens. It is part of every address.</p>
      </div>
      <${Features} draft=${draft} change=${change} />
      <${BudgetFields} draft=${draft} change=${change} />
      <${QuestionFields} draft=${draft} change=${change} />
      <div role="alert">${wrong && html`<p class="notice bad">${wrong}</p>`}</div>
      <div><button class="button primary" disabled=${busy}>${busy ? "Creating …" : "Create the policy"}</button></div>
    </form>
  </div>`;
}

/**
 * A listener that takes the value of an input.
 * @param {(value: string) => void} take
 */
function given(take) {
  return (/** @type {any} */ event) => take(event.target.value);
}

/** @param {{ draft: NewPolicy.PolicyDraft, change: Change }} props */
function Features({ draft, change }) {
  const [wrong, setWrong] = useState("");
  const read = async (/** @type {any} */ event) => {
    const [file] = event.target.files;
    if (!file) return;
    try {
      const columns = await readColumns(file);
      const model = columns.find(({ use }) => use === "model");
      const name = file.name.replace(/\.\w+$/, "").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "").slice(0, 64);
      const options = model && model.levels.length <= 9 ? { options: model.levels.join("\n") } : {};
      change({ columns, ...options, ...(draft.name ? {} : { name }) });
      setWrong("");
    } catch (error) {
      setWrong(messageOf(error));
    }
  };
  return html`<section class="card stack" aria-labelledby="features-title">
    <div>
      <h2 id="features-title">Features of a task</h2>
      <p class="muted small">Features tell tasks apart: the policy learns for which ones a person is worth the cost.</p>
    </div>
    <div class="field">
      <label for="file">Read the features from a CSV file</label>
      <input id="file" type="file" accept=".csv,.tsv,.txt,text/csv" onChange=${read} aria-describedby="file-help" />
      <p class="help" id="file-help">Only the header and the first rows are read, in the browser; nothing is sent.</p>
      ${wrong && html`<p class="wrong" role="alert">${wrong}</p>`}
    </div>
    ${draft.columns
      ? html`<${Columns} columns=${draft.columns} change=${change} />`
      : html`<${FeatureRows} draft=${draft} change=${change} />`}
  </section>`;
}

/** @param {{ columns: NewPolicy.Column[], change: Change }} props */
function Columns({ columns, change }) {
  const use = (/** @type {number} */ index, /** @type {string} */ chosen) =>
    change({ columns: columns.map((each, at) => (at === index ? { ...each, use: /** @type {NewPolicy.Use} */ (chosen) } : each)) });
  const late = columns.filter(({ name, use: used }) => used === "unused" && isKnownAfterwards(name)).map(({ name }) => name);
  return html`<div class="scroll"><table class="data">
      <thead><tr><th scope="col">Column, first values</th><th scope="col">Used as</th></tr></thead>
      <tbody>
        ${columns.map(
          ({ name, values, use: used }, index) => html`<tr>
            <td class="break"><strong dir="auto">${name}</strong><br /><span class="small muted" dir="auto">${sample(values)}</span></td>
            <td class="use"><select aria-label=${`Use of ${name}`} value=${used} onChange=${given((value) => use(index, value))}>
              ${USES.map(([value, text]) => html`<option value=${value} selected=${value === used}
                disabled=${value === "number" && !values.every((each) => each === "" || numberOf(each) !== null)}>${text}</option>`)}
            </select></td>
          </tr>`,
        )}
      </tbody>
    </table></div>
    ${late.length > 0 &&
    html`<p class="small muted">Not used, because the name suggests that the value is known only after the decision: ${late.join(", ")}.</p>`}
    <div><button type="button" class="button small" onClick=${() => change({ columns: null })}>Enter features by hand instead</button></div>`;
}

/** @param {string[]} values */
function sample(values) {
  const text = [...new Set(values.filter(Boolean))].slice(0, 3).join(", ");
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

/** @param {{ draft: NewPolicy.PolicyDraft, change: Change }} props */
function FeatureRows({ draft, change }) {
  const { features } = draft;
  const edit = (/** @type {number} */ index, /** @type {object} */ part) =>
    change({ features: features.map((each, at) => (at === index ? { ...each, ...part } : each)) });
  const remove = (/** @type {number} */ index) => change({ features: features.filter((_, at) => at !== index) });
  const add = () => change({ features: [...features, { name: "", kind: "number", levels: "" }] });
  return html`<fieldset class="stack tight">
    <legend class="label">Or enter them</legend>
    ${features.map(
      ({ name, kind, levels }, index) => html`<div class="feature-row">
        <input aria-label=${`Name of feature ${index + 1}`} placeholder="length" maxlength="128" value=${name}
          onInput=${given((value) => edit(index, { name: value }))} />
        <select aria-label=${`Kind of feature ${index + 1}`} value=${kind} onChange=${given((value) => edit(index, { kind: value }))}>
          <option value="number">number</option>
          <option value="category">category</option>
        </select>
        <input aria-label=${`Levels of feature ${index + 1}`} placeholder=${kind === "category" ? "de, fr, it (or empty)" : ""}
          disabled=${kind !== "category"} value=${levels} onInput=${given((value) => edit(index, { levels: value }))} />
        <button type="button" class="button small quiet icon" aria-label=${`Remove feature ${index + 1}`} disabled=${features.length === 1}
          onClick=${() => remove(index)}>✕</button>
      </div>`,
    )}
    <div><button type="button" class="button small" onClick=${add}>Add a feature</button></div>
  </fieldset>`;
}

/** @param {{ draft: NewPolicy.PolicyDraft, change: Change }} props */
function BudgetFields({ draft, change }) {
  const { unit, unitS, limited, lasts } = draft;
  const setUnit = (/** @type {string} */ value) => change({ unit: value, unitS: UNIT_SECONDS[value] ?? "" });
  return html`<section class="card stack" aria-labelledby="budget-title">
    <h2 id="budget-title">Budget for reviews</h2>
    <div class="field-row">
      <${NumberField} id="total" label="Budget" value=${draft.total} min="0" disabled=${!limited} onValue=${(/** @type {string} */ total) => change({ total })} />
      <div class="field">
        <label for="unit">Counted in</label>
        <input id="unit" required list="units" maxlength="64" pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*" value=${unit} onInput=${given(setUnit)} />
        <datalist id="units"><option value="minutes" /><option value="hours" /><option value="euros" /></datalist>
      </div>
      <div class="field">
        <label for="lasts">Period</label>
        <select id="lasts" value=${lasts} disabled=${!limited}
          onChange=${given((value) => change({ lasts: /** @type {NewPolicy.PolicyDraft["lasts"]} */ (value) }))}>
          ${LASTS.map(([value, text]) => html`<option value=${value} selected=${value === lasts}>${text}</option>`)}
        </select>
      </div>
      ${lasts === "tasks" &&
      html`<${NumberField} id="horizon" label="Number of tasks to plan for" value=${draft.horizon} min="1" step="1" disabled=${!limited}
        onValue=${(/** @type {string} */ horizon) => change({ horizon })} />`}
      ${lasts === "until" &&
      html`<div class="field">
        <label for="until">Last day</label>
        <input id="until" type="date" required disabled=${!limited} value=${draft.until} onInput=${given((until) => change({ until }))} />
      </div>`}
      <${NumberField} id="max-cost" label="Maximum cost of one review" value=${draft.maxCost} min="0.000001" disabled=${!limited}
        onValue=${(/** @type {string} */ maxCost) => change({ maxCost })} />
    </div>
    ${!(unit in UNIT_SECONDS) &&
    html`<${NumberField} id="unit-s" label=${`Seconds of work for one unit of ${unit || "cost"} (empty: reviewers enter the cost)`} value=${unitS}
      min="0.001" optional onValue=${(/** @type {string} */ value) => change({ unitS: value })} />`}
    ${RENEWS.includes(lasts) &&
    html`<label class="check">
      <input type="checkbox" checked=${draft.carries} disabled=${!limited} onChange=${() => change({ carries: !draft.carries })} />
      <span>Carry over the unused budget, up to one ${lasts}'s budget</span>
    </label>`}
    <label class="check">
      <input type="checkbox" checked=${draft.stops} disabled=${!limited} onChange=${() => change({ stops: !draft.stops })} />
      <span>Reviews can be stopped: reserve the expected cost instead of the maximum; when nothing is left, use the model's answer</span>
    </label>
    <label class="check">
      <input type="checkbox" checked=${!limited} onChange=${() => change({ limited: !limited })} />
      <span>No limit: ask whenever a person is expected to do better</span>
    </label>
  </section>`;
}

/**
 * @param {object} props
 * @param {string} props.id
 * @param {string} props.label
 * @param {string} props.value
 * @param {string} props.min
 * @param {string} [props.step]
 * @param {boolean} [props.disabled]
 * @param {boolean} [props.optional]
 * @param {(value: string) => void} props.onValue
 */
function NumberField({ id, label, value, min, step = "any", disabled = false, optional = false, onValue }) {
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <input id=${id} type="number" inputmode="decimal" min=${min} step=${step} required=${!optional && !disabled}
      disabled=${disabled} value=${value} onInput=${given(onValue)} />
  </div>`;
}

/** @param {{ draft: NewPolicy.PolicyDraft, change: Change }} props */
function QuestionFields({ draft, change }) {
  const options = linesOf(draft.options);
  const kind = options.length ? "choice" : "text";
  const form = [{ name: "label", kind, label: draft.question, options: options.map((value) => ({ value })) }];
  const nothing = () => {};
  return html`<section class="card stack" aria-labelledby="question-title">
    <div>
      <h2 id="question-title">Question for reviewers</h2>
      <p class="muted small">The model counts as right where its answer equals the reviewers' answer; nobody enters rewards.</p>
    </div>
    <div class="field">
      <label for="question">Question</label>
      <input id="question" required maxlength="200" value=${draft.question} onInput=${given((question) => change({ question }))} />
    </div>
    <div class="field-row">
      <div class="field">
        <label for="options">Answers to choose from, one in a line</label>
        <textarea id="options" rows="5" value=${draft.options} aria-describedby="options-help"
          onInput=${given((value) => change({ options: value }))}></textarea>
        <p class="help" id="options-help">Without any, reviewers write their answer.</p>
      </div>
      <div class="field">
        <p class="label">Preview for reviewers</p>
        <div class=${classes("preview", answersAtOnce(/** @type {any} */ (form)) && "choices")}>
          <${ReviewForm} form=${form} values=${{}} problems=${{}} onChange=${nothing} onAnswer=${nothing} disabled />
        </div>
      </div>
    </div>
    <div class="field">
      <label for="guidelines-text">Guidelines <span class="muted">(optional)</span></label>
      <textarea id="guidelines-text" rows="3" maxlength="20000" value=${draft.guidelines}
        onInput=${given((guidelines) => change({ guidelines }))}></textarea>
    </div>
    <${NumberField} id="reviewers" label="People for each task" value=${draft.reviewers} min="1" step="1"
      onValue=${(/** @type {string} */ reviewers) => change({ reviewers })} />
  </section>`;
}

/** @param {{ draft: NewPolicy.PolicyDraft, session: Session }} props */
function Made({ draft, session }) {
  const task = exampleTask(draft);
  const name = encodeURIComponent(draft.name);
  return html`<div class="page narrow stack">
    <p class="notice good" role="status">The policy <strong>${draft.name}</strong> is ready for its first task.</p>
    <h1>Send it a task</h1>
    <p class="muted">The same task sent again gets the same decision, so a program may repeat a call.</p>
    <${Lines} title="In a shell" id="curl" text=${curlLines(location.origin, draft.name, task, !session.open)} />
    <${Lines} title="In Python" id="python" text=${pythonLines(location.origin, draft.name, task, !session.open)} />
    <div class="row">
      <a class="button primary" href=${`/console/p/${name}`}>Open the policy</a>
      <a class="button" href=${`/review/${name}`}>Open the review page</a>
    </div>
  </div>`;
}

/** @param {{ title: string, id: string, text: string }} props */
function Lines({ title, id, text }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(text).then(() => setCopied(true));
  return html`<section class="stack tight" aria-labelledby=${`${id}-title`}>
    <div class="row spread">
      <h2 id=${`${id}-title`}>${title}</h2>
      ${navigator.clipboard && html`<button type="button" class="button small" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>`}
    </div>
    <pre class="code" id=${id} tabindex="0">${text}</pre>
  </section>`;
}
