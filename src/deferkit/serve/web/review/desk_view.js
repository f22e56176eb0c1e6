// The desk as it is seen: the task on the left, the answer beside it, guidelines, what was answered last.

import { announce } from "../announce.js";
import { get, policyPath, query } from "../api.js";
import { classes, html, useEffect, useMemo, useReducer, useRef, useState } from "../dom.js";
import { amounts, clock, counted } from "../format.js";
import { usePoll } from "../poll.js";
import { keep, kept } from "../storage.js";
import { AnswerCard } from "./answer_card.js";
import { AnswerList, undoable } from "./answer_list.js";
import { Desk } from "./desk.js";
import { DeclineDialog, KeysDialog } from "./dialogs.js";
import { useKeys } from "./keys.js";
import { Payload } from "./payload.js";
import { claimId } from "./claims.js";

const STATUS_MS = 5000;
const EMPTY_MS = 2000;
const GUIDELINES = "guidelines";

/** @param {{ settings: Review.ReviewSettings, reviewer: string, tenant: string, onRename: (() => void) | null }} props */
export function DeskView({ settings, reviewer, tenant, onRename }) {
  const [, redraw] = useReducer((/** @type {number} */ n, /** @type {void} */ _) => n + 1, 0);
  const refresh = useRef(() => {});
  const desk = useMemo(() => {
    /** @type {Desk["told"]} */
    const told = (event, text) => {
      if (event === "claimed") announce("A task is here.");
      if (event === "empty") announce("No task waits for you.");
      if (event === "lost") announce(`This task cannot be answered any more. ${text}`);
      if (event === "sent") announce(`${text}: sent.`);
      if (event !== "claimed") refresh.current();
    };
    return new Desk({ settings, reviewer, tenant, changed: () => redraw(), told });
  }, []);
  useEffect(() => desk.start(), []);
  const [dialog, setDialog] = useState(/** @type {"" | "keys" | "decline"} */ (""));
  const [guided, setGuided] = useState(() => kept(GUIDELINES) ?? true);
  const { guidelines } = settings.review;
  const status = usePoll(
    (signal) => get(policyPath(settings.policy, `/reviews/status${query({ reviewer })}`), { signal }),
    desk.claim ? STATUS_MS : EMPTY_MS,
  );
  refresh.current = status.refresh;
  useEffect(() => {
    if (!desk.claim && status.data?.waiting > 0) void desk.next();
  }, [status.data]);

  const guide = () => {
    keep(GUIDELINES, !guided);
    setGuided(!guided);
  };
  const undo = () => {
    const last = undoable(desk);
    if (last) void desk.reopen(last.id);
  };
  const actions = {
    undo,
    guidelines: guide,
    help: () => setDialog("keys"),
    decline: () => desk.claim && !desk.correcting && !desk.lost && setDialog("decline"),
  };
  return html`<div class=${classes("page review", guidelines && guided && "guided")}>
    <div class="review-head">
      <div class="row">
        <h1>${settings.policy}</h1>
        <${Progress} status=${status.data} />
      </div>
      <div class="row">
        ${settings.experts.length > 1 && html`<${ExpertChoice} desk=${desk} />`}
        <span class="small muted">as ${reviewer}${onRename && html` <button type="button" class="link small" onClick=${onRename}>change</button>`}</span>
        ${guidelines &&
        html`<button type="button" class="button small" aria-expanded=${String(guided)} aria-controls="guidelines" onClick=${guide}>
          Guidelines <kbd aria-hidden="true">G</kbd>
        </button>`}
        <button type="button" class="button small" onClick=${actions.help}>Keys <kbd aria-hidden="true">?</kbd></button>
      </div>
    </div>
    <${Connection} desk=${desk} />
    <div class="review-grid">
      ${desk.claim
        ? html`<${TaskCard} desk=${desk} />
            <div class="review-side stack">
              <${AnswerCard} key=${claimId(desk.claim)} desk=${desk} actions=${actions} />
              <${AnswerList} desk=${desk} />
            </div>`
        : html`<${EmptyDesk} desk=${desk} status=${status.data} actions=${actions} />
            <div class="review-side stack"><${AnswerList} desk=${desk} /></div>`}
      ${guidelines &&
      html`<aside id="guidelines" class="card guidelines" hidden=${!guided} aria-labelledby="guidelines-title">
        <h2 id="guidelines-title">Guidelines</h2>
        <div class="payload-text" dir="auto">${guidelines}</div>
      </aside>`}
    </div>
    ${dialog === "keys" && html`<${KeysDialog} onClose=${() => setDialog("")} />`}
    ${dialog === "decline" && html`<${DeclineDialog} desk=${desk} onClose=${() => setDialog("")} />`}
  </div>`;
}

/** @param {{ status: Review.QueueStatus | null }} props */
function Progress({ status }) {
  if (!status) return null;
  const cost = Object.values(status.cost_today ?? {}).some((each) => each > 0) ? ` · ${amounts(status.cost_today)}` : "";
  return html`<span class="muted small number" data-progress>
    ${counted(status.done_today, "answer")} today${cost} · ${counted(status.waiting, "task")} waiting
  </span>`;
}

/** @param {{ desk: Desk }} props */
function ExpertChoice({ desk }) {
  const change = (/** @type {any} */ event) => desk.setExpert(event.target.value || null);
  return html`<label class="row small">Tasks for
    <select class="compact" value=${desk.expert ?? ""} onChange=${change}>
      <option value="">anybody</option>
      ${desk.settings.experts.map((name) => html`<option value=${name}>${name}</option>`)}
    </select>
  </label>`;
}

/** @param {{ desk: Desk }} props */
function Connection({ desk }) {
  const { outbox } = desk;
  const late = outbox.unsent.filter(({ attempts }) => attempts > 0);
  if (outbox.needsLogin) {
    const next = `/console/login?next=${encodeURIComponent(location.pathname)}`;
    return html`<p class="notice warn" role="alert">Your session is over. <a href=${next}>Log in again</a>: what you answered is kept in this browser.</p>`;
  }
  if (outbox.unreachable && late.length) {
    return html`<p class="notice warn" role="status">No connection to the service. ${counted(late.length, "answer")} kept in this browser, sent when it is back.</p>`;
  }
  return null;
}

/** @param {{ desk: Desk }} props */
function TaskCard({ desk }) {
  const { claim } = desk;
  const title = useRef(/** @type {HTMLElement | null} */ (null));
  const id = claim ? claimId(claim) : "";
  useEffect(() => title.current?.focus({ preventScroll: true }), [id]);
  // drawn once for each task: the timer redraws the rest twice a second
  const payload = useMemo(() => {
    if (!claim) return null;
    if (claim.payload === undefined) return html`<p class="muted">The task is no longer stored. You can still correct your answer.</p>`;
    return html`<${Payload} key=${id} payload=${claim.payload} kind=${desk.settings.review.payload ?? "auto"} />`;
  }, [id, claim?.payload]);
  if (!claim) return null;
  return html`<section class="card task" aria-labelledby="task-title">
    <header class="row spread">
      <h2 id="task-title" class="break" tabindex="-1" ref=${title}>${desk.correcting && "Correct "}${claim.task}</h2>
      <span class="small muted">${claim.deadline && `answer before ${clock(claim.deadline)}`}</span>
    </header>
    <div class="payload" tabindex="0" role="region" aria-label="What to review">${payload}</div>
  </section>`;
}

/**
 * @param {object} props
 * @param {Desk} props.desk
 * @param {Review.QueueStatus | null} props.status
 * @param {{ undo: () => void, help: () => void, guidelines: () => void }} props.actions
 */
function EmptyDesk({ desk, status, actions }) {
  useKeys({ ...actions, choose: () => {}, submit: () => {}, clear: () => {}, decline: () => {} });
  if (desk.trouble) {
    return html`<section class="card empty"><h2>Waiting for the service</h2><p class="muted">${desk.trouble}</p></section>`;
  }
  if (!desk.empty || !status) return html`<section class="card empty"><p class="muted">Looking for a task …</p></section>`;
  return html`<section class="card empty" data-empty=${status.why_empty}>
    <h2>No task waits for you</h2>
    <p class="muted">
      ${status.why_empty === "all_claimed" && status.next_free_at
        ? `Others hold all tasks. The first may come free at ${clock(status.next_free_at)}.`
        : status.text}
    </p>
    <p class="small muted">New tasks appear here by themselves.</p>
  </section>`;
}
