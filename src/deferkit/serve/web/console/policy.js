// One policy: what its budget does, over time and by exact sums, and topping it up.

import { policyPath } from "../api.js";
import { LineChart } from "../charts/line_chart.js";
import { html, useMemo, useState } from "../dom.js";
import { amount, clock, exact, number, percent } from "../format.js";
import { useReply } from "../poll.js";
import { may } from "../session.js";
import { BudgetPlan } from "./budget_plan.js";
import { Empty, Loaded } from "./loaded.js";
import { Alarms } from "./overview.js";
import { PolicyFrame, pageOf } from "./policy_frame.js";
import { curlLines, exampleContext } from "./send_lines.js";
import { ShareBars } from "./share_bars.js";
import { StandingFigures } from "./standing_figures.js";
import { TopUp } from "./top_up.js";
import { nextUnit, oneOf, pace, remedy, rewardUnit, stateText } from "./wording.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const STANDING_MS = 2000;
const SERIES_MS = 5000;
const BUCKETS = 120;

/** @typedef {import("../session.js").Session} Session */

/** @param {{ params: { name: string }, session: Session }} props */
export default function Policy({ params: { name }, session }) {
  const standing = /** @type {Polled<Api.Standing>} */ (useReply(policyPath(name, "/standing"), STANDING_MS));
  const series = /** @type {Polled<Api.SeriesReply>} */ (
    useReply(policyPath(name, `/series?buckets=${BUCKETS}`), SERIES_MS)
  );
  const changed = () => {
    standing.refresh();
    series.refresh();
  };
  return html`<${PolicyFrame} name=${name} tab="" session=${session}>
    <${Loaded}
      poll=${standing}
      draw=${(/** @type {Api.Standing} */ data) => html`
        <${Head} standing=${data} />
        ${data.decisions
          ? html`<${Loaded} poll=${series} draw=${(/** @type {Api.SeriesReply} */ found) => html`<${Charts} standing=${data} series=${found} />`} />`
          : html`<${NoDecisions} name=${name} session=${session} />`}
        <div class="columns">
          <${Accounts} standing=${data} />
          ${may(session, "admin") &&
          html`<div class="stack">
            <${TopUp} standing=${data} onChange=${changed} />
            <${BudgetPlan} name=${name} onChange=${changed} />
          </div>`}
        </div>
      `}
    />
  <//>`;
}

/** @param {{ standing: Api.Standing }} props */
function Head({ standing }) {
  const { alarms } = standing;
  const plan = pace(standing);
  return html`<section class="stack" aria-label="Status">
    <p class="lead">
      <span class=${`badge ${plan.tone}`}>${plan.text}</span>
      <span>${stateText(standing)} <strong>${nextUnit(standing)}</strong></span>
    </p>
    ${remedy(standing) && html`<p class="small muted">${remedy(standing)}</p>`}
    ${alarms.length > 0 && html`<${Alarms} alarms=${alarms} />`}
    <div class="card stack">
      <${StandingFigures} standing=${standing} />
    </div>
  </section>`;
}

/** @param {{ name: string, session: import("../session.js").Session }} props */
function NoDecisions({ name, session }) {
  const policy = /** @type {Polled<Api.PolicySpec>} */ (useReply(policyPath(name), 600_000));
  const task = { task: "task-1", context: policy.data ? exampleContext(policy.data.features) : [] };
  return html`<${Empty} title="No decisions yet">
    <p class="muted">Charts appear with the first tasks. To send one:</p>
    ${policy.data && html`<pre class="code start" tabindex="0">${curlLines(location.origin, name, task, !session.open)}</pre>`}
    <p class="small muted">The values are examples. The features of this policy are in its <a href=${pageOf(name, "/settings")}>settings</a>.</p>
  <//>`;
}

/** @param {{ standing: Api.Standing, series: Api.SeriesReply }} props */
function Charts({ standing, series }) {
  const resources = Object.keys(standing.budget);
  const [chosen, setChosen] = useState(standing.unit);
  const resource = resources.includes(chosen) ? chosen : standing.unit;
  const x = useMemo(() => series.start.map((at) => at + series.width_s), [series]);
  const spending = useMemo(() => spendingLines(series, resource), [series, resource]);
  const price = useMemo(
    () => [{ label: `price of a ${oneOf(resource)}`, values: series.price[resource] ?? [], tone: /** @type {4} */ (4) }],
    [series, resource],
  );
  const gain = useMemo(
    () => [{ label: rewardUnit(standing), values: series.gain, error: series.gain_error.map((each) => 2 * (each ?? 0)), tone: /** @type {3} */ (3) }],
    [series],
  );
  if (x.length < 2) return html`<p class="muted">Charts need a few more moments of data.</p>`;
  const spent = series.posted[resource]?.at(-1) ?? 0;
  return html`<section class="stack" aria-label="Over time">
    ${!series.complete &&
    html`<p class="notice" role="status">Reading the log: ${percent(series.read / Math.max(1, series.records))}. The charts grow as it is read.</p>`}
    ${resources.length > 1 &&
    html`<div class="row" role="group" aria-label="Resource">
      ${resources.map(
        (each) => html`<button
          type="button"
          class=${`button small${each === resource ? " primary" : ""}`}
          aria-pressed=${each === resource}
          onClick=${() => setChosen(each)}
        >
          ${each}
        </button>`,
      )}
    </div>`}
    <div class="columns">
      <figure class="card">
        <h2>Spending against plan</h2>
        <${LineChart} summary=${`Spending over time: ${amount(spent, resource)} by now.`} x=${x} lines=${spending} />
      </figure>
      <figure class="card">
        <h2>Price over time</h2>
        <${LineChart} summary=${`What a ${oneOf(resource)} must bring, over time.`} x=${x} lines=${price} />
      </figure>
      <figure class="card">
        <h2>Gain over the model alone</h2>
        <${LineChart} summary=${`Gain over time: ${number(series.gain.at(-1))} by now.`} x=${x} lines=${gain} />
        <figcaption class="small muted">The band is two standard errors.</figcaption>
      </figure>
      <figure class="card">
        <h2>Who decided, and why</h2>
        <${ShareBars} title="By route" counts=${latest(series.routes)} />
        <${ShareBars} title="By reason" counts=${latest(series.reasons)} />
      </figure>
    </div>
  </section>`;
}

/**
 * @param {Api.SeriesReply} series
 * @param {string} resource
 * @returns {import("../charts/line_chart.js").Line[]}
 */
function spendingLines(series, resource) {
  const posted = series.posted[resource] ?? [];
  const plan = series.plan[resource];
  const promised = posted.map((each, place) => each + (series.reserved[resource]?.[place] ?? 0));
  return [
    { label: "spent", values: posted, tone: 1, filled: true },
    { label: "with reserved", values: promised, tone: 2 },
    ...(plan ? [{ label: "plan", values: plan, tone: /** @type {5} */ (5), dashed: true }] : []),
  ];
}

/** @param {Record<string, number[]>} counts */
function latest(counts) {
  return Object.fromEntries(Object.entries(counts).map(([name, values]) => [name, values.at(-1) ?? 0]));
}

/** @param {{ standing: Api.Standing }} props */
function Accounts({ standing }) {
  return html`<section class="card">
    <h2>Accounts</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Accounts">
      <table class="data compact">
        <thead>
          <tr><th>Resource</th><th class="right">Total</th><th class="right">Spent</th><th class="right">Reserved</th><th class="right">Suspense</th><th class="right">Free</th></tr>
        </thead>
        <tbody>
          ${Object.entries(standing.budget).map(
            ([resource, each]) => html`<tr key=${resource}>
              <td>${resource}</td>
              <td class="right">${each.total === null ? "no limit" : exact(each.total)}</td>
              <td class="right">${exact(each.posted)}</td>
              <td class="right">${exact(each.reserved)}</td>
              <td class=${`right${each.suspense > 0 ? " bad-text strong" : ""}`}>${exact(each.suspense)}</td>
              <td class="right">${each.free === null ? "no limit" : exact(each.free)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${Object.entries(standing.budget).map(([resource, each]) => each.period && html`<${Period} resource=${resource} period=${each.period} />`)}
    <p class="small muted">
      Reserved is held for tasks whose cost is not known yet. Suspense is what was booked beyond the total; while there is
      any, nobody is asked.
    </p>
  </section>`;
}

/** @param {{ resource: string, period: Api.PeriodState }} props */
function Period({ resource, period }) {
  const { total, granted, carried, held, changed } = period;
  const parts = [
    ...(granted ? [`${number(granted)} granted`] : []),
    ...(carried ? [`${number(carried)} ${period.renews ? "carried over" : "from the start"}`] : []),
    ...(held ? [`${number(held)} held for reviews that were pending`] : []),
    ...(changed ? [`${number(changed)} by top-ups and cuts`] : []),
  ];
  const end = period.over ? "It ended" : period.renews ? "It is renewed" : "It ends";
  return html`<p class="small">
    <strong>${period.renews ? `Period ${number(period.number)}` : "Until its end"}:</strong>
    ${" "}${amount(total, resource)} (${parts.join(", ") || "nothing"}), of which ${number(period.posted)} spent. ${end} ${clock(period.end)}.
  </p>`;
}
