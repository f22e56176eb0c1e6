// Unfinished answers, kept by task and epoch: a reload goes on where it was.

import { drop, keep, kept, keptKeys } from "../storage.js";
import { claimId } from "./claims.js";

const OLDEST_MS = 7 * 86_400_000;

/** The drafts of one reviewer in one policy. */
export class Drafts {
  /** @param {string} owner Tells tenants, policies and reviewers apart. */
  constructor(owner) {
    this.start = `draft.${owner}.`;
    for (const key of keptKeys(this.start)) {
      if (!(kept(key)?.at > Date.now() - OLDEST_MS)) drop(key);
    }
  }

  /**
   * @param {Review.Claim} claim
   * @returns {Review.Draft}
   */
  read(claim) {
    return kept(this.start + claimId(claim)) ?? { values: {}, activeS: 0, cost: null, at: Date.now() };
  }

  /**
   * @param {Review.Claim} claim
   * @param {Omit<Review.Draft, "at">} draft
   */
  write(claim, draft) {
    keep(this.start + claimId(claim), { ...draft, at: Date.now() });
  }

  /** @param {{ task: string, seat: number, epoch: number }} claim */
  forget(claim) {
    drop(this.start + claimId(claim));
  }
}
