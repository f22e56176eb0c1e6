// A budget as one bar: what is posted, what is reserved, and where the plan would be by now.

import { html } from "../dom.js";
import { amount, percent } from "../format.js";

/**
 * @param {object} props
 * @param {Api.BudgetState} props.account
 * @param {string} props.unit
 * @param {number | null} props.planned The share of the total that the plan has spent by now.
 */
export function BudgetBar({ account, unit, planned }) {
  const { reserved, suspense } = account;
  const { total, posted } = account.period ?? account; // of a budget that renews, the current period
  if (total === null)
    return html`<p class="small muted">${amount(posted + suspense, unit)} spent, ${amount(reserved, unit)} reserved; no limit</p>`;
  const share = (/** @type {number} */ part) => (total > 0 ? Math.min(1, Math.max(0, part / total)) : 0);
  const label = `${amount(posted, unit)} of ${amount(total, unit)} spent, ${amount(reserved, unit)} reserved`;
  return html`<div class="budget">
    <div class="budget-bar" role="img" aria-label=${label}>
      <span class="posted" style=${{ width: percentage(share(posted)) }}></span>
      <span class="reserved" style=${{ width: percentage(Math.min(share(reserved), 1 - share(posted))) }}></span>
      ${planned !== null && html`<span class="planned" style=${{ left: percentage(Math.min(1, planned)) }}></span>`}
    </div>
    <div class="row spread small muted">
      <span><b class="number">${percent(share(posted))}</b> spent: ${amount(posted, "")} of ${amount(total, unit)}${reserved > 0 ? `, ${amount(reserved, "")} reserved` : ""}</span>
      ${planned !== null && html`<span class="plan-key">plan ${percent(Math.min(1, planned))}</span>`}
    </div>
  </div>`;
}

/** @param {number} share */
function percentage(share) {
  return `${(100 * share).toFixed(2)}%`;
}
