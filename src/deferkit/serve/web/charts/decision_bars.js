// Why a task went where it went: each decider's estimate, its width, and the price of its cost, on one axis.

import { html, useRef } from "../dom.js";
import { number } from "../format.js";
import { domain, linear, ticks, useWidth } from "./scales.js";

/**
 * @typedef {object} Index
 * @property {string} decider
 * @property {number} estimate expected reward
 * @property {number} width what optimism adds to it
 * @property {number} priced price × expected cost, less what optimism takes off the cost
 * @property {number} net estimate + width − priced: the largest one decides
 */

/**
 * Return an amount by resource; a bare number belongs to the only resource.
 * @param {number | Record<string, number>} amount
 * @returns {Record<string, number>}
 */
function byResource(amount) {
  return typeof amount === "number" ? { "": amount } : amount;
}

/**
 * Return what deciders were compared by.
 * @param {Api.DecisionReply} decision
 * @returns {Index[]}
 */
export function indices(decision) {
  const prices = byResource(decision.price);
  return Object.entries(decision.estimates).map(([decider, estimate]) => {
    const width = decision.widths[decider] ?? 0;
    const costs = byResource(decision.costs[decider] ?? 0);
    const widths = byResource(decision.cost_widths[decider] ?? 0);
    const priced = Object.entries(costs).reduce(
      (sum, [resource, cost]) => sum + (prices[resource] ?? 0) * Math.max(0, cost - (widths[resource] ?? 0)),
      0,
    );
    return { decider, estimate, width, priced, net: estimate + width - priced };
  });
}

const ROW = 58;
const BAR = 14;

/**
 * The bars of one decider.
 * @param {object} props
 * @param {Index} props.index
 * @param {boolean} props.chosen
 * @param {number} props.top
 * @param {(value: number) => number} props.at
 */
function Row({ index, chosen, top, at }) {
  const { decider, estimate, width, priced, net } = index;
  const from = Math.min(at(0), at(estimate));
  const upper = estimate + width;
  return html`<g>
    <text class=${chosen ? "name chosen" : "name"} x="0" y=${top + 12}>${decider}${chosen ? " · chosen" : ""}</text>
    <rect class="estimate" x=${from} y=${top + 20} width=${Math.abs(at(estimate) - at(0))} height=${BAR} />
    <rect class="width" x=${at(estimate)} y=${top + 20} width=${at(upper) - at(estimate)} height=${BAR} />
    ${priced > 0 && html`<rect class="priced" x=${at(net)} y=${top + 36} width=${at(upper) - at(net)} height="6" />`}
    <line class="net" x1=${at(net)} x2=${at(net)} y1=${top + 17} y2=${top + 45} />
  </g>`;
}

/**
 * One row for each decider: the bar is its estimate, the pale part what optimism adds, the thin bar below what its
 * cost takes away at the price of then; the mark is what remains.
 * @param {object} props
 * @param {Api.DecisionReply} props.decision
 */
export function DecisionBars({ decision }) {
  const holder = useRef(/** @type {HTMLElement | null} */ (null));
  const width = useWidth(holder);
  const rows = indices(decision);
  const [low, high] = domain([0, ...rows.flatMap((row) => [row.estimate, row.estimate + row.width, row.net])]);
  const at = linear([low, high], [8, Math.max(60, width) - 24]);
  const bottom = rows.length * ROW + 4;
  const summary = rows
    .map((row) => `${row.decider}: ${number(row.estimate)} plus ${number(row.width)} less ${number(row.priced)}`)
    .join("; ");
  return html`<div class="decision-bars" ref=${holder}>
    <svg role="img" aria-label=${summary} width=${width} height=${bottom + 20}>
      ${ticks(low, high, width / 90).map(
        (tick) => html`<g key=${tick}>
          <line class="grid" x1=${at(tick)} x2=${at(tick)} y1="0" y2=${bottom} />
          <text class="tick" x=${at(tick)} y=${bottom + 14}>${number(tick)}</text>
        </g>`,
      )}
      ${rows.map(
        (index, place) =>
          html`<${Row} index=${index} chosen=${index.decider === decision.route} top=${place * ROW} at=${at} />`,
      )}
    </svg>
  </div>`;
}
