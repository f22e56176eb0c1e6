// Claims: what a call sends of one, and a name for it.

/**
 * The lease of a claim, as calls send it.
 * @param {Review.Lease} claim
 * @returns {Review.Lease}
 */
export function leaseOf({ task, seat, epoch, token }) {
  return { task, seat, epoch, token };
}

/**
 * One name for a claim: the same task claimed again has another epoch.
 * @param {{ task: string, seat: number, epoch: number }} claim
 */
export function claimId({ task, seat, epoch }) {
  return `${seat}.${epoch}.${task}`;
}
