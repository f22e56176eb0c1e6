// What was learned: calibration, coefficients with their errors, what has drifted.

import { policyPath } from "../api.js";
import { CalibrationPlot } from "../charts/calibration_plot.js";
import { CoefficientPlot } from "../charts/coefficient_plot.js";
import { html } from "../dom.js";
import { counted, number, percent } from "../format.js";
import { useReply } from "../poll.js";
import { Empty, Loaded } from "./loaded.js";
import { PolicyFrame, pageOf } from "./policy_frame.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 15_000;

/** @param {{ params: { name: string }, session: import("../session.js").Session }} props */
export default function Estimates({ params: { name }, session }) {
  const poll = /** @type {Polled<Api.EstimatesReply>} */ (useReply(policyPath(name, "/estimates"), EVERY_MS));
  return html`<${PolicyFrame} name=${name} tab="/estimates" session=${session}>
    <${Loaded}
      poll=${poll}
      draw=${(/** @type {Api.EstimatesReply} */ data) =>
        data.targets.some((target) => target.samples > 0)
          ? html`<${Drifts} drifts=${data.drifts} />
              ${data.targets.map((target) => html`<${TargetCard} key=${target.target} target=${target} />`)}
              <p class="small muted">Representation: ${data.representation}.</p>`
          : html`<${Empty} title="No estimates yet">
              <p class="muted">Estimates are learned from rewards and costs of answered reviews and reported outcomes.</p>
              <a class="button" href=${pageOf(name, "/queue")}>See what waits</a>
            <//>`}
    />
  <//>`;
}

/** @param {{ drifts: Api.DriftState[] }} props */
function Drifts({ drifts }) {
  if (!drifts.length) return html`<p class="notice">No drift was detected: the estimates still hold.</p>`;
  return html`<ul class="alarms" aria-label="Drifts">
    ${drifts.map(
      (drift) => html`<li key=${drift.target} class="notice warn">
        <strong>${drift.target}</strong> changed at decision ${number(drift.since ?? drift.decision)}${means(drift)}:
        ${percent(drift.strength)} of its observations were discarded${drift.times > 1 ? `. Detected ${number(drift.times)} times so far` : ""}.
      </li>`,
    )}
  </ul>`;
}

/**
 * The mean before a drift and since, where they are known.
 * @param {Api.DriftState} drift
 */
function means({ before, after }) {
  return before == null || after == null ? "" : `, from ${number(before)} to ${number(after)} on average`;
}

/** @param {{ target: Api.TargetEstimate }} props */
function TargetCard({ target }) {
  const forgot = target.samples_in_use < target.samples - 0.5;
  const what = target.target.startsWith("cost of ") ? target.target : `Reward of ${target.target}`;
  return html`<section class="card">
    <div class="row spread target-head">
      <h2 class="break">${what[0]?.toUpperCase()}${what.slice(1)}</h2>
      <span class="muted small">
        ${counted(target.samples, "observation")}${forgot ? `, ${number(Math.round(target.samples_in_use))} in use` : ""}
      </span>
    </div>
    ${target.samples > 0
      ? html`<div class="estimate-columns">
          <div>
            <h3>Calibration</h3>
            ${target.calibration.length > 1
              ? html`<${CalibrationPlot} bins=${target.calibration} label=${what} />
                  <p class="small muted">On the line, predictions come true. Bars are two standard errors.</p>`
              : html`<p class="muted">Too few observations to compare predictions with.</p>`}
          </div>
          <div>
            <h3>Coefficients</h3>
            <${CoefficientPlot} coefficients=${target.coefficients} />
          </div>
        </div>`
      : html`<p class="muted">Never observed so far.</p>`}
  </section>`;
}
