// What can be changed of a policy, and what it was made with.

import { policyPath } from "../api.js";
import { html } from "../dom.js";
import { number } from "../format.js";
import { useReply } from "../poll.js";
import { may } from "../session.js";
import { Loaded } from "./loaded.js";
import { PolicyFrame } from "./policy_frame.js";
import { QueueSettings } from "./queue_settings.js";
import { ReviewEditor } from "./review_editor.js";
import { Webhooks } from "./webhooks.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 600_000; // what is being edited is not read again meanwhile

/** @param {{ params: { name: string }, session: import("../session.js").Session }} props */
export default function Settings({ params: { name }, session }) {
  const policy = /** @type {Polled<Api.PolicySpec>} */ (useReply(policyPath(name), EVERY_MS));
  const review = /** @type {Polled<Api.ReviewReply>} */ (useReply(policyPath(name, "/review"), EVERY_MS));
  const admin = may(session, "admin");
  return html`<${PolicyFrame} name=${name} tab="/settings" session=${session}>
    <${Loaded}
      poll=${policy}
      draw=${(/** @type {Api.PolicySpec} */ data) => html`
        ${!admin && html`<p class="notice">This key can read settings, not change them.</p>`}
        ${admin && html`<${QueueSettings} policy=${data} />`}
        ${admin && html`<${Loaded} poll=${review} draw=${(/** @type {Api.ReviewReply} */ found) => html`<${ReviewEditor} policy=${data} initial=${found.review} />`} />`}
        ${admin && html`<${Webhooks} policy=${name} />`}
        <div class="columns">
          <${Exports} name=${name} />
          <${Fixed} policy=${data} />
        </div>
      `}
    />
  <//>`;
}

/** @param {{ name: string }} props */
function Exports({ name }) {
  return html`<section class="card stack">
    <h2>Export</h2>
    <p class="muted">CSV files with all data so far.</p>
    <div class="row">
      <a class="button" href=${policyPath(name, "/export/decisions.csv")} download=${`${name}-decisions.csv`}>Decisions (CSV)</a>
      <a class="button" href=${policyPath(name, "/export/ledger.csv")} download=${`${name}-ledger.csv`}>Ledger (CSV)</a>
    </div>
  </section>`;
}

/** @param {{ policy: Api.PolicySpec }} props */
function Fixed({ policy }) {
  const { features } = policy;
  const named = typeof features === "number" ? [] : [...(features.numbers ?? []), ...Object.keys(features.categories ?? {})];
  return html`<section class="card stack">
    <h2>Made with</h2>
    <dl class="facts">
      <dt>Experts</dt>
      <dd>${(policy.experts ?? []).join(", ")}</dd>
      <dt>Features</dt>
      <dd>${typeof features === "number" ? `a vector of ${number(features)}` : named.join(", ")}</dd>
      <dt>Largest cost of a task</dt>
      <dd>${Object.entries(policy.budget).map(([resource, each]) => (each.max_cost === null ? `${resource}: not given` : `${number(each.max_cost)} ${resource}`)).join(", ")}</dd>
      <dt>Rewards</dt>
      <dd>from ${number(policy.reward_range[0])} to ${number(policy.reward_range[1])}</dd>
      <dt>Random decisions</dt>
      <dd>${policy.explore_floor > 0 ? `${number(100 * policy.explore_floor)} % of the tasks, to learn from` : "none on purpose"}</dd>
      <dt>Pacing</dt>
      <dd>${policy.pacing}</dd>
    </dl>
    <p class="small muted">These cannot be changed: the estimates depend on them.</p>
  </section>`;
}
