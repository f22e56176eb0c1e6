// Results with other budgets: the log replayed with each, as a job of the service.

import { useSubmit } from "../action.js";
import { get, policyPath, post, query } from "../api.js";
import { ErrorBars } from "../charts/error_bars.js";
import { html, useState } from "../dom.js";
import { amounts, number, percent } from "../format.js";
import { usePoll } from "../poll.js";
import { navigate } from "../router.js";
import { Loaded } from "./loaded.js";
import { PolicyFrame, pageOf } from "./policy_frame.js";
import { withError } from "./wording.js";

const RUNNING_MS = 1000;
const DONE_MS = 600_000;
const BUDGETS = "0.25x 0.5x 1.5x 2x 4x";
const AS_IT_WAS = "as it was";

/** @param {{ params: { name: string }, session: import("../session.js").Session }} props */
export default function WhatIf({ params: { name }, session }) {
  const job = new URLSearchParams(location.search).get("job") ?? "";
  return html`<${PolicyFrame} name=${name} tab="/what-if" session=${session}>
    <${Question} name=${name} />
    ${job && html`<${Job} key=${job} name=${name} job=${job} />`}
  <//>`;
}

/** @param {{ name: string }} props */
function Question({ name }) {
  const [text, setText] = useState(BUDGETS);
  const { busy, trouble, run } = useSubmit(async () => {
    const budgets = text.split(/[\s;]+/).filter(Boolean);
    const { job } = await post(policyPath(name, "/what-if"), { budgets });
    navigate(pageOf(name, `/what-if${query({ job })}`), { replace: true });
  });
  return html`<form class="card stack" onSubmit=${run}>
    <p>The log is replayed with other budgets to estimate who would have been asked and the reward.</p>
    <div class="field">
      <label for="budgets">Budgets to try</label>
      <input
        id="budgets"
        value=${text}
        autocomplete="off"
        onInput=${(/** @type {InputEvent} */ event) => setText(/** @type {HTMLInputElement} */ (event.target).value)}
      />
      <p class="help">
        Separated by spaces: a part of the budget (<code>0.5x</code>, <code>50%</code>), a total (<code>300</code>), or
        ${" "}<code>inf</code>; by resource <code>minutes=300,euros=2x</code>. For a renewing budget, it is the amount of each
        period gets.
      </p>
    </div>
    <div class="row"><button class="button primary" disabled=${busy || !text.trim()}>Compute</button></div>
    ${trouble && html`<p class="notice bad" role="alert">${trouble}</p>`}
  </form>`;
}

/** @param {{ name: string, job: string }} props */
function Job({ name, job }) {
  const [every, setEvery] = useState(RUNNING_MS);
  const poll = usePoll(
    async (signal) => {
      /** @type {Api.WhatIfReply} */
      const found = await get(policyPath(name, `/what-if${query({ job })}`), { signal });
      if (found.state !== "running") setEvery(DONE_MS);
      return found;
    },
    every,
    [job],
  );
  return html`<${Loaded}
    poll=${poll}
    draw=${(/** @type {Api.WhatIfReply} */ data) => {
      if (data.state === "running")
        return html`<div class="card stack" role="status">
          <label for="progress">Replaying the log: ${percent(data.progress)}</label>
          <progress id="progress" max="1" value=${data.progress}></progress>
        </div>`;
      if (data.state === "failed") return html`<p class="notice bad" role="alert">${data.error}</p>`;
      return html`<${Answer} found=${data} />`;
    }}
  />`;
}

/** @param {{ found: Api.WhatIfReply }} props */
function Answer({ found }) {
  const resource = Object.keys(found.rows[0]?.totals ?? {})[0] ?? "";
  const points = found.rows
    .flatMap((row) => {
      const total = row.totals[resource];
      if (row.reward === null || total === null || total === undefined) return [];
      const error = 2 * (row.reward.error ?? 0);
      return [{ x: total, y: row.reward.value, error, label: row.budget, marked: row.budget === AS_IT_WAS }];
    })
    .sort((a, b) => a.x - b.x);
  return html`<section class="stack" aria-label="Results with other budgets">
    ${points.length > 1 &&
    html`<figure class="card">
      <h2>Reward of a task, by budget</h2>
      <${ErrorBars}
        points=${points}
        xLabel=${`budget, ${resource}`}
        yLabel="reward of a task"
        summary=${points.map((point) => `${point.label}: ${number(point.y)} ± ${number(point.error)}`).join("; ")}
      />
      <figcaption class="small muted">Bars are two standard errors. Rewards are ${found.basis}.</figcaption>
    </figure>`}
    ${found.remarks.length > 0 &&
    html`<ul class="notice warn remarks">
      ${found.remarks.map((remark) => html`<li>${remark}</li>`)}
    </ul>`}
    <div class="card flush scroll" tabindex="0" role="region" aria-label="Budgets compared">
      <table class="data sticky-first">
        <thead>
          <tr>
            <th>Budget</th><th class="right">Total</th><th class="right">Asked</th><th class="right">Spent</th>
            <th class="right">Last price</th><th class="right">Reward of a task</th><th class="right">Difference</th>
          </tr>
        </thead>
        <tbody>
          ${found.rows.map(
            (row) => html`<tr key=${row.budget} class=${row.budget === AS_IT_WAS ? "strong" : ""}>
              <th scope="row">${row.budget}</th>
              <td class="right nowrap">${Object.entries(row.totals).map(([name, each]) => (each === null ? "no limit" : `${number(each)} ${name}`)).join(", ")}</td>
              <td class="right">${percent(row.asked)}</td>
              <td class="right nowrap">${amounts(row.spent)}</td>
              <td class="right nowrap">${amounts(row.price)}</td>
              <td class="right nowrap">${row.reward === null ? "not known" : withError(row.reward)}</td>
              <td class="right nowrap">${row.difference === null ? "not known" : row.budget === AS_IT_WAS ? "–" : withError(row.difference)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;
}
