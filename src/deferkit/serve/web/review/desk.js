// The task in front of a reviewer: claimed, held, answered, taken back, declined, lost.

import { ApiError, get, messageOf, policyPath, post, query } from "../api.js";
import { Drafts } from "./drafts.js";
import { Outbox, UNDO_MS } from "./outbox.js";
import { ActiveTimer, costOf } from "./timer.js";
import { answerText } from "./answers.js";
import { claimId, leaseOf } from "./claims.js";

const RETRY_MS = 3000;
const EXTEND_RETRY_MS = 3000;
const NEARLY = 0.8; // the share of a hold at which more is asked for
const DRAFT_MS = 2000;

/** Everything that happens at one reviewer's desk; `changed` is called whenever something to be shown did. */
export class Desk {
  /**
   * @param {object} given
   * @param {Review.ReviewSettings} given.settings
   * @param {string} given.reviewer
   * @param {string} given.tenant
   * @param {() => void} given.changed
   * @param {(event: "claimed" | "empty" | "lost" | "sent", text: string) => void} given.told
   */
  constructor({ settings, reviewer, tenant, changed, told }) {
    this.settings = settings;
    this.reviewer = reviewer;
    this.changed = changed;
    this.told = told;
    const owner = [tenant, settings.policy, reviewer].map(encodeURIComponent).join("/");
    this.drafts = new Drafts(owner);
    const acknowledged = (/** @type {Review.Entry} */ entry) => this.acknowledged(entry);
    this.outbox = new Outbox({ policy: settings.policy, owner, changed, acknowledged });
    this.timer = new ActiveTimer(() => this.tick());
    /** @type {Review.Claim | null} */
    this.claim = null;
    /** @type {Review.Claim[]} Claims that wait while an answer is changed. */
    this.parked = [];
    /** @type {Map<string, Review.Claim>} Claims that were answered, to open them again. */
    this.answered = new Map();
    /** @type {Map<string, number>} Until when each claim lasts, by the clock of this machine in milliseconds. */
    this.until = new Map();
    /** @type {Map<string, number>} What each claim may cost before it asks again, where reviews can be stopped. */
    this.holds = new Map();
    /** @type {Review.Values} */
    this.values = {};
    /** @type {number | null} */
    this.cost = null;
    /** @type {string | null} The expert that this reviewer stands for; null: any. */
    this.expert = null;
    this.correcting = false;
    this.lost = "";
    this.paid = false; // the task is lost because it was stopped: its cost is booked
    this.trouble = "";
    this.empty = false;
    this.looking = false;
    this.uncertain = true; // a claim may be held that this page does not know of
    this.lastDraft = 0;
    this.lastExtend = 0;
    this.waitTimer = 0;
    this.stopped = false;
  }

  /** Begin; returns what ends it. */
  start() {
    const ends = [this.outbox.begin(), this.timer.start()];
    const again = () => {
      if (!this.claim && !document.hidden) void this.next();
    };
    addEventListener("online", again);
    document.addEventListener("visibilitychange", again);
    void this.next();
    return () => {
      this.stopped = true;
      this.keepDraft();
      clearTimeout(this.waitTimer);
      removeEventListener("online", again);
      document.removeEventListener("visibilitychange", again);
      for (const end of ends) end();
    };
  }

  /** The cost of the answer as it stands: what the reviewer entered, else what the timer says; null without either. */
  get proposedCost() {
    const { timer } = this.settings.review;
    return this.cost ?? (timer ? costOf(this.timer.seconds, timer.unit_s) : null);
  }

  /** Bring the next task: one that is held already, else a new one. */
  async next() {
    if (this.looking || this.stopped) return;
    clearTimeout(this.waitTimer);
    this.looking = true;
    try {
      const claim = this.parked.shift() ?? (await this.heldClaim()) ?? (await this.newClaim());
      if (this.stopped) return;
      this.trouble = "";
      this.empty = !claim;
      if (claim) this.sit(claim);
      else this.told("empty", "");
    } catch (error) {
      this.uncertain = true;
      this.trouble = messageOf(error);
    } finally {
      this.looking = false;
    }
    if (this.trouble) this.waitTimer = setTimeout(() => this.next(), RETRY_MS);
    this.changed();
  }

  /** @returns {Promise<Review.Claim | null>} */
  async heldClaim() {
    if (!this.uncertain) return null;
    let after = "";
    do {
      const { held, next } = await get(this.path(`/reviews/held${query({ reviewer: this.reviewer, after })}`));
      for (const each of held.filter((/** @type {Review.Claim} */ claim) => !this.outbox.has(claim))) {
        try {
          return await this.resume(each);
        } catch (error) {
          // made in another session: it waits for its lease to end, or is over by now
          if (!(error instanceof ApiError && [403, 409].includes(error.status))) throw error;
        }
      }
      after = next;
    } while (after);
    this.uncertain = false;
    return null;
  }

  /**
   * @param {{ task: string, seat: number }} held
   * @returns {Promise<Review.Claim>}
   */
  async resume({ task, seat }) {
    return this.holding(await post(this.path("/reviews/resume"), { reviewer: this.reviewer, task, seat }));
  }

  /** @returns {Promise<Review.Claim | null>} */
  async newClaim() {
    if (this.outbox.overdue) {
      // the lease of an answer that is late may have lapsed: a claim could take that very task away from it
      this.outbox.sendNow();
      throw new ApiError(0, "unreachable", "Answers wait to be sent.");
    }
    const experts = this.expert ? { experts: [this.expert] } : {};
    const claim = await post(this.path("/reviews/claim"), { reviewer: this.reviewer, ...experts });
    return claim && this.holding(claim);
  }

  /**
   * @param {Review.Claim} claim
   * @returns {Review.Claim}
   */
  holding(claim) {
    this.until.set(claimId(claim), Date.now() + 1000 * this.settings.lease_s);
    return claim;
  }

  /**
   * Put a task on the desk.
   * @param {Review.Claim} claim
   * @param {Review.Entry} [entry] The answer that it had.
   */
  sit(claim, entry) {
    const draft = entry ?? this.drafts.read(claim);
    this.claim = claim;
    this.values = draft.values;
    this.cost = draft.cost;
    this.correcting = false;
    this.lost = "";
    this.empty = false;
    this.timer.restart(draft.activeS);
    this.told("claimed", "");
  }

  /**
   * Take what was entered.
   * @param {Review.Values} values
   */
  setValues(values) {
    this.values = values;
    this.keepDraft();
    this.changed();
  }

  /** @param {number | null} cost */
  setCost(cost) {
    this.cost = cost;
    this.keepDraft();
    this.changed();
  }

  /**
   * Answer the task and go to the next one.
   * @param {Review.Values} answer
   */
  submit(answer) {
    const { claim } = this;
    if (!claim || this.lost) return;
    const given = { answer, ...this.costBody() };
    const body = this.correcting ? { ...leaseOf(claim), id: correctionId(), ...given } : { ...leaseOf(claim), ...given };
    const leftMs = (this.until.get(claimId(claim)) ?? 0) - Date.now();
    this.outbox.add({
      call: this.correcting ? "correct" : "complete",
      body,
      // sent while the lease lasts, or the task could be claimed again before the answer is there
      delayMs: this.correcting ? UNDO_MS : Math.min(UNDO_MS, Math.max(0, leftMs / 2)),
      text: answerText(this.settings.review.form, answer),
      values: this.values,
      activeS: this.timer.seconds,
      cost: this.cost,
    });
    this.answered.set(claimId(claim), claim);
    this.clear();
    void this.next();
  }

  /** @returns {{ cost?: Record<string, number> }} */
  costBody() {
    const { unit } = this.settings;
    return unit && this.proposedCost !== null ? { cost: { [unit]: this.proposedCost } } : {};
  }

  /**
   * Open an answer again: taken back if it was not sent, else to be corrected.
   * @param {string} id
   */
  async reopen(id) {
    const entry = this.outbox.entries.get(id);
    if (!entry) return;
    const back = this.outbox.takeBack(id);
    if (!back && entry.state !== "sent") return;
    try {
      const corrects = !back || entry.call === "correct";
      const known = entry.state === "refused" ? undefined : this.answered.get(id);
      // what was completed before a reload cannot be read again, only corrected
      const claim = known ?? (corrects ? withoutPayload(entry) : await this.resume(entry.body));
      this.park();
      this.sit(claim, entry);
      this.correcting = corrects;
    } catch (error) {
      if (back) this.outbox.put({ ...back, state: "refused", detail: messageOf(error) });
    }
    this.changed();
  }

  /** Leave a correction, or the task that is lost, and go on. */
  leave() {
    this.clear();
    void this.next();
  }

  /**
   * Refuse the task; it does not come back to this reviewer.
   * @param {string} reason
   * @param {boolean} bookEffort
   */
  async decline(reason, bookEffort) {
    const { claim } = this;
    if (!claim) return;
    await post(this.path("/reviews/decline"), { ...leaseOf(claim), reason });
    if (bookEffort) this.bookEffort();
    this.drafts.forget(claim);
    this.clear();
    void this.next();
  }

  /** Book what was worked on the task at the desk, which cannot be answered any more. */
  bookEffort() {
    const { claim } = this;
    const cost = this.costBody();
    if (!claim || !cost.cost) return;
    const rest = { values: this.values, activeS: this.timer.seconds, cost: this.cost };
    this.outbox.add({ call: "effort", body: { ...leaseOf(claim), ...cost }, text: "effort", ...rest, delayMs: 0 });
  }

  /**
   * Book the effort of an answer that came too late.
   * @param {Review.Entry} entry
   */
  bookEffortOf(entry) {
    const { task, seat, epoch, token, cost } = entry.body;
    this.outbox.remove(entry.id);
    const body = { task, seat, epoch, token, cost };
    const { text, values, activeS, cost: corrected } = entry;
    this.outbox.add({ call: "effort", body, text, values, activeS, cost: corrected, delayMs: 0 });
  }

  /** @param {string | null} expert */
  setExpert(expert) {
    this.expert = expert;
    this.changed();
  }

  park() {
    if (this.claim && !this.lost && !this.correcting) {
      this.keepDraft();
      this.parked.unshift(this.claim);
    }
  }

  clear() {
    this.timer.stop();
    this.claim = null;
    this.values = {};
    this.cost = null;
    this.correcting = false;
    this.lost = "";
    this.paid = false;
    this.changed();
  }

  /** @param {Review.Entry} entry */
  acknowledged(entry) {
    this.drafts.forget(entry.body);
    if (this.answered.size > 10) this.answered.delete([...this.answered.keys()][0] ?? "");
    this.told("sent", entry.text);
  }

  tick() {
    if (Date.now() - this.lastDraft > DRAFT_MS) this.keepDraft();
    void this.extend();
    this.changed();
  }

  keepDraft() {
    if (!this.claim || this.correcting) return;
    this.lastDraft = Date.now();
    this.drafts.write(this.claim, { values: this.values, activeS: this.timer.seconds, cost: this.cost });
  }

  /** Hold the task, and those that wait, for longer, while somebody works at it. */
  async extend() {
    if (!this.timer.active || this.lost || Date.now() - this.lastExtend < EXTEND_RETRY_MS) return;
    const due = Date.now() + 500 * this.settings.lease_s;
    const holding = this.claim && !this.correcting ? [this.claim, ...this.parked] : this.parked;
    const ending = holding.filter((each) => (this.until.get(claimId(each)) ?? 0) < due || this.needsMore(each));
    if (ending.length) this.lastExtend = Date.now();
    for (const claim of ending) await this.extendOne(claim);
  }

  /**
   * Whether the task at the desk has cost most of what is held for it, or that is not known yet.
   * @param {Review.Claim} claim
   */
  needsMore(claim) {
    if (!this.settings.stops || claim !== this.claim || this.proposedCost === null) return false;
    return this.proposedCost >= NEARLY * (this.holds.get(claimId(claim)) ?? 0);
  }

  /** @param {Review.Claim} claim */
  async extendOne(claim) {
    const cost = this.settings.stops && claim === this.claim ? this.costBody() : {};
    try {
      const { hold, stopped, booked } = await post(this.path("/reviews/extend"), { ...leaseOf(claim), ...cost });
      this.holding(claim);
      if (typeof hold === "number") this.holds.set(claimId(claim), hold);
      if (stopped && this.claim === claim) {
        this.paid = booked !== undefined;
        const cost = this.paid ? "its cost is booked" : "your cost is not booked yet";
        this.lose(`The budget of this review is used up. The review was stopped, ${cost}, and the model's answer is used.`);
      }
    } catch (error) {
      if (!(error instanceof ApiError) || error.temporary || error.status === 401) return;
      this.parked = this.parked.filter((each) => each !== claim);
      if (this.claim !== claim) return;
      this.keepDraft();
      this.lose(messageOf(error));
    }
    this.changed();
  }

  /** @param {string} why */
  lose(why) {
    this.lost = why;
    this.timer.stop();
    this.told("lost", this.lost);
  }

  /** @param {string} rest */
  path(rest) {
    return policyPath(this.settings.policy, rest);
  }
}

/**
 * @param {Review.Entry} entry
 * @returns {Review.Claim}
 */
function withoutPayload({ body: { task, seat, epoch, token } }) {
  return { task, seat, epoch, token, expert: "", lease_until: 0, deadline: null, waiting_since: 0, payload: undefined };
}

function correctionId() {
  return `console-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
}
