// Who is here, and what they may do.

import { get } from "./api.js";

/**
 * @typedef {object} Session
 * @property {string} tenant
 * @property {string[]} scopes
 * @property {string | null} reviewer The name that answers are given under; null: choose one.
 * @property {number | null} expires Seconds since 1970.
 * @property {boolean} open There are no keys: whoever reaches this address may do everything.
 * @property {string} key The id of the key; empty without one.
 */

/**
 * Read the session; throws a 401 if there is none.
 * @returns {Promise<Session>}
 */
export function readSession() {
  return get("/v1/session", { stay: true });
}

/**
 * Whether a session has one of the scopes.
 * @param {Session} session
 * @param {...string} scopes
 */
export function may(session, ...scopes) {
  return session.open || scopes.some((scope) => session.scopes.includes(scope));
}

/**
 * The page that a session begins with: reviewers have no other.
 * @param {Session} session
 */
export function homeOf(session) {
  return may(session, "admin", "read") ? "/console" : "/review";
}
