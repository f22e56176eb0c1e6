// The shapes of the review queue, as the service sends them.

/**
 * @typedef {object} FormField
 * @property {string} name
 * @property {"choice" | "choices" | "boolean" | "number" | "text"} kind
 * @property {string} [label]
 * @property {{ value: string, label?: string | null }[] | null} [options] Of choice and choices.
 * @property {boolean} [required]
 * @property {number | null} [min]
 * @property {number | null} [max]
 * @property {string | null} [help]
 */
/**
 * @typedef {object} ReviewDocument
 * @property {FormField[]} form
 * @property {string} [guidelines]
 * @property {PayloadKind} [payload]
 * @property {"hidden" | "after" | "shown"} [model_answer]
 * @property {{ resource: string, unit_s: number } | null} [timer]
 */
/** @typedef {"auto" | "text" | "fields" | "table" | "chat" | "image" | "json"} PayloadKind */
/**
 * What a reviewer needs to know of a policy.
 * @typedef {object} ReviewSettings
 * @property {string} policy
 * @property {ReviewDocument} review
 * @property {number} lease_s
 * @property {number} reviewers People for each task.
 * @property {string[]} experts
 * @property {string | null} unit The resource that the cost of an answer counts in.
 * @property {number | null} max_cost
 */
/**
 * @typedef {object} Lease
 * @property {string} task
 * @property {number} seat
 * @property {number} epoch
 * @property {string} token
 */
/**
 * A task that this reviewer holds.
 * @typedef {Lease & { expert: string, lease_until: number, deadline: number | null, waiting_since: number,
 *   payload: unknown, model_answer?: unknown }} Claim
 */
/** @typedef {Record<string, unknown>} Values What was entered, by field. */
/**
 * @typedef {object} QueueStatus
 * @property {number} waiting
 * @property {number} claimed
 * @property {number | null} next_free_at
 * @property {string | null} why_empty
 * @property {string} text
 * @property {number} done
 * @property {number} done_today
 * @property {Record<string, number>} cost_today
 */

/**
 * The lease of a claim, as calls send it.
 * @param {Lease} claim
 * @returns {Lease}
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
