// Answers on their way: each waits a few seconds, in which it can be taken back, and is then sent until acknowledged.
// Entries are in the browser's storage, so they survive a reload; the service takes the same answer twice as one.

import { ApiError, messageOf, policyPath, post } from "../api.js";
import { drop, keep, kept, keptKeys } from "../storage.js";
import { claimId } from "./claims.js";

export const UNDO_MS = 5000;
const RETRY_MS = [1000, 2000, 4000, 8000, 15_000];
const SENT_KEPT = 5;

/** The answers of one reviewer in one policy. */
export class Outbox {
  /**
   * @param {object} given
   * @param {string} given.policy
   * @param {string} given.owner Tells tenants, policies and reviewers apart.
   * @param {() => void} given.changed
   * @param {(entry: Review.Entry, reply: any) => void} given.acknowledged
   */
  constructor({ policy, owner, changed, acknowledged }) {
    this.policy = policy;
    this.start = `outbox.${owner}.`;
    this.changed = changed;
    this.acknowledged = acknowledged;
    this.unreachable = "";
    this.needsLogin = false;
    this.timer = 0;
    this.busy = false;
    this.stopped = false;
    /** @type {Map<string, Review.Entry>} */
    this.entries = new Map();
    for (const key of keptKeys(this.start)) {
      const entry = /** @type {Review.Entry | null} */ (kept(key));
      if (entry) this.entries.set(entry.id, entry.state === "sending" ? { ...entry, state: "waiting" } : entry);
    }
  }

  /** Entries, the latest first. */
  get list() {
    return [...this.entries.values()].sort((a, b) => b.at - a.at);
  }

  /** Entries that the service has not got yet. */
  get unsent() {
    return this.list.filter(({ state }) => state === "waiting" || state === "sending");
  }

  /** Whether an answer should have been sent by now. */
  get overdue() {
    return this.unsent.some(({ at }) => Date.now() - at > 2 * UNDO_MS);
  }

  /**
   * Whether a claim has an answer here.
   * @param {{ task: string, seat: number, epoch: number }} claim
   */
  has(claim) {
    return this.entries.has(claimId(claim));
  }

  /** Begin to send; returns what ends it. */
  begin() {
    const now = () => this.sendNow();
    const left = () => {
      if (document.hidden) this.flush();
    };
    addEventListener("online", now);
    addEventListener("pagehide", this.flush);
    document.addEventListener("visibilitychange", left);
    this.send();
    return () => {
      this.stopped = true;
      clearTimeout(this.timer);
      removeEventListener("online", now);
      removeEventListener("pagehide", this.flush);
      document.removeEventListener("visibilitychange", left);
    };
  }

  /**
   * Take an answer; it is sent once its time has come.
   * @param {Omit<Review.Entry, "id" | "state" | "attempts" | "detail" | "at" | "sendAt"> & { delayMs?: number }} given
   */
  add({ delayMs = UNDO_MS, ...given }) {
    const now = Date.now();
    const state = { state: /** @type {Review.State} */ ("waiting"), attempts: 0, detail: "" };
    this.put({ ...given, ...state, id: claimId(given.body), sendAt: now + delayMs, at: now });
    this.send();
  }

  /** Try again at once what could not be sent. */
  sendNow() {
    for (const entry of this.unsent) if (entry.state === "waiting" && entry.attempts) this.put({ ...entry, sendAt: 0 });
    this.send();
  }

  /**
   * Take back an answer that was not sent, or that was refused; returns it, or null if it is too late.
   * @param {string} id
   */
  takeBack(id) {
    const entry = this.entries.get(id);
    const back = entry?.state === "refused" || (entry?.state === "waiting" && entry.attempts === 0);
    if (!entry || !back) return null;
    this.remove(id);
    return entry;
  }

  /** @param {string} id */
  remove(id) {
    this.entries.delete(id);
    drop(this.start + id);
    this.changed();
  }

  /** Send what waits now, because the page goes away; it is sent again later unless it was acknowledged. */
  flush = () => {
    for (const entry of this.entries.values()) {
      if (entry.state !== "waiting") continue;
      this.put({ ...entry, sendAt: Date.now(), attempts: Math.max(1, entry.attempts) });
      const body = JSON.stringify(entry.body);
      if (body.length > 60_000) continue; // more than a request may have that outlives its page
      const headers = { "content-type": "application/json" };
      fetch(this.path(entry), { method: "POST", headers, body, keepalive: true }).catch(() => {});
    }
    this.send();
  };

  /** Send what is due, one after the other, and come back when the next one is. */
  send() {
    clearTimeout(this.timer);
    if (this.busy || this.stopped) return;
    const waiting = this.list.filter(({ state }) => state === "waiting").sort((a, b) => a.sendAt - b.sendAt);
    const next = waiting[0];
    if (!next) return;
    const pause = next.sendAt - Date.now();
    if (pause > 0) this.timer = setTimeout(() => this.send(), pause);
    else void this.sendOne(next);
  }

  /** @param {Review.Entry} entry */
  async sendOne(entry) {
    this.busy = true;
    this.put({ ...entry, state: "sending", attempts: entry.attempts + 1 });
    try {
      const reply = await post(this.path(entry), entry.body, { stay: true });
      this.unreachable = "";
      this.needsLogin = false;
      this.put({ ...entry, state: "sent", modelAnswer: reply?.model_answer ?? undefined });
      this.prune();
      this.acknowledged(entry, reply);
    } catch (error) {
      this.failed(entry, error);
    } finally {
      this.busy = false;
      this.send();
    }
  }

  /**
   * @param {Review.Entry} entry
   * @param {unknown} error
   */
  failed(entry, error) {
    const attempts = entry.attempts + 1;
    const detail = messageOf(error);
    if (error instanceof ApiError && error.status !== 401 && !error.temporary) {
      this.put({ ...entry, state: error.status === 409 ? "conflict" : "refused", attempts, detail });
      return;
    }
    this.unreachable = detail;
    this.needsLogin = error instanceof ApiError && error.status === 401;
    const retryAfterMs = error instanceof ApiError ? 1000 * error.retryAfterS : 0;
    const pause = RETRY_MS[Math.min(attempts, RETRY_MS.length) - 1] ?? 0;
    this.put({ ...entry, state: "waiting", attempts, detail, sendAt: Date.now() + Math.max(retryAfterMs, pause) });
  }

  /** @param {Review.Entry} entry */
  path(entry) {
    return policyPath(this.policy, `/reviews/${entry.call}`);
  }

  /** @param {Review.Entry} entry */
  put(entry) {
    this.entries.set(entry.id, entry);
    keep(this.start + entry.id, entry);
    this.changed();
  }

  /** Forget all but the latest answers that were acknowledged. */
  prune() {
    for (const { id } of this.list.filter(({ state }) => state === "sent").slice(SENT_KEPT)) this.remove(id);
  }
}
