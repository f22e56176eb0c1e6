// The budget of a policy as a bar, what pending reviews hold, and its figures: on the overview and on its own page.

import { html } from "../dom.js";
import { counted, duration, number, percent } from "../format.js";
import { BudgetBar } from "./budget_bar.js";
import { Stat } from "./stat.js";
import { gainBasis, rewardUnit, runsOut, withError } from "./wording.js";

/** @param {{ standing: Api.Standing }} props */
export function StandingFigures({ standing }) {
  const { unit, gain, queue } = standing;
  const end = runsOut(standing);
  const account = standing.budget[unit];
  return html`
    ${account && html`<${BudgetBar} account=${account} unit=${unit} planned=${standing.planned} />`}
    ${standing.held && html`<p class="small muted">${standing.held}</p>`}
    <dl class="stats">
      <${Stat} label="Runs out" value=${end.text} note=${end.note} />
      <${Stat} label="Gain so far" value=${withError(gain)} note=${`${rewardUnit(standing)}, ${gainBasis(gain)}`} />
      <${Stat}
        label="Oldest waiting"
        value=${queue.oldest_s === null ? "–" : duration(queue.oldest_s)}
        note=${`${number(queue.waiting)} waiting, ${number(queue.claimed)} claimed`}
      />
      <${Stat} label="Deferred" value=${percent(standing.deferral_rate)} note=${`of ${counted(standing.decisions, "decision")}`} />
    </dl>
  `;
}
