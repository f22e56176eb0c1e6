// Who reviews: how much, how long, for what, and how often they agree with others.

import { policyPath } from "../api.js";
import { html } from "../dom.js";
import { ago, amounts, duration, number, percent } from "../format.js";
import { useReply } from "../poll.js";
import { may } from "../session.js";
import { GivenText } from "./given_text.js";
import { Empty, Loaded } from "./loaded.js";
import { PolicyFrame } from "./policy_frame.js";

/** @template T @typedef {import("../poll.js").Polled<T>} Polled */

const EVERY_MS = 5000;

/** @typedef {import("../session.js").Session} Session */

/** @param {{ params: { name: string }, session: Session }} props */
export default function Reviewers({ params: { name }, session }) {
  const poll = /** @type {Polled<Api.ReviewersReply>} */ (useReply(policyPath(name, "/reviewers"), EVERY_MS));
  return html`<${PolicyFrame} name=${name} tab="/reviewers" session=${session}>
    <${Loaded}
      poll=${poll}
      draw=${(/** @type {Api.ReviewersReply} */ data) =>
        data.reviewers.length
          ? html`<${Table} reviewers=${data.reviewers} />`
          : html`<${Empty} title="No reviewers yet">
              <p class="muted">Reviewers open this address with a key that has the scope <code>review</code>:</p>
              <pre class="code" tabindex="0">${`${location.origin}/review/${name}`}</pre>
              ${may(session, "admin") && !session.open && html`<a class="button" href="/console/keys">Create a key for a reviewer</a>`}
            <//>`}
    />
  <//>`;
}

/** @param {{ reviewers: Api.ReviewerLine[] }} props */
function Table({ reviewers }) {
  const shown = [...reviewers].sort((a, b) => b.done - a.done || a.reviewer.localeCompare(b.reviewer));
  return html`<div class="stack">
    <div class="card flush scroll" tabindex="0" role="region" aria-label="Reviewers">
      <table class="data sticky-first">
        <thead>
          <tr>
            <th>Reviewer</th><th class="right">Answered</th><th class="right">Holds</th><th class="right">Declined</th>
            <th class="right">Lapsed</th><th class="right">Time</th><th class="right">Cost</th><th class="wrap">Same as colleagues</th>
            <th class="wrap">Same as the model</th><th>Last seen</th>
          </tr>
        </thead>
        <tbody>
          ${shown.map(
            (each) => html`<tr key=${each.reviewer}>
              <th scope="row" class="id"><${GivenText} text=${each.reviewer} /></th>
              <td class="right">${number(each.done)}</td>
              <td class="right">${number(each.held)}</td>
              <td class="right">${number(each.declined)}</td>
              <td class="right">${number(each.lapsed)}</td>
              <td class="right nowrap">${duration(each.active_s)}</td>
              <td class="right nowrap">${amounts(each.cost)}</td>
              <td><${Share} share=${each.agrees_with_colleagues} /></td>
              <td><${Share} share=${each.agrees_with_model} /></td>
              <td class="nowrap">${ago(each.last)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="small muted">
      Lapsed: claims whose lease ended before the answer. Agreement: share of tasks with the same answer; a dash if there was
      nobody to compare with.
    </p>
  </div>`;
}

/** @param {{ share: number | null }} props */
function Share({ share }) {
  if (share === null) return html`<span class="muted">–</span>`;
  return html`<span class="inline-share">
    <span class="track" aria-hidden="true"><span style=${{ width: `${100 * share}%` }}></span></span> ${percent(share)}
  </span>`;
}
