// Calls of the service: JSON in, JSON out, problems as ApiError.

import { navigate } from "./router.js";

const TIMEOUT_MS = 20_000;
const LOGIN = "/console/login";

/** A call that failed. `status` is 0 if no reply came: no connection, or the time was up. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} detail
   * @param {number} [retryAfterS]
   */
  constructor(status, code, detail, retryAfterS = 0) {
    super(detail);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.retryAfterS = retryAfterS;
  }

  /** Whether the same call may succeed later: no connection, too many calls, a service that starts or stops. */
  get temporary() {
    return this.status === 0 || this.status === 408 || this.status === 429 || this.status >= 500;
  }
}

/**
 * What went wrong, as a sentence.
 * @param {unknown} error
 */
export function messageOf(error) {
  if (error instanceof ApiError && error.status === 0) return "The service cannot be reached.";
  return error instanceof Error ? error.message : String(error);
}

/**
 * @typedef {object} CallOptions
 * @property {AbortSignal} [signal]
 * @property {boolean} [stay] Throw a 401 instead of going to the login page.
 */

/**
 * Read `path`.
 * @param {string} path
 * @param {CallOptions} [options]
 * @returns {Promise<any>}
 */
export function get(path, options) {
  return call("GET", path, undefined, options);
}

/**
 * Send `body` to `path`.
 * @param {string} path
 * @param {unknown} body
 * @param {CallOptions} [options]
 * @returns {Promise<any>}
 */
export function post(path, body, options) {
  return call("POST", path, body, options);
}

/**
 * Change what is at `path`.
 * @param {string} path
 * @param {unknown} body
 * @param {CallOptions} [options]
 * @returns {Promise<any>}
 */
export function patch(path, body, options) {
  return call("PATCH", path, body, options);
}

/**
 * Delete what is at `path`.
 * @param {string} path
 * @param {CallOptions} [options]
 * @returns {Promise<any>}
 */
export function del(path, options) {
  return call("DELETE", path, undefined, options);
}

/**
 * The path of a policy's route.
 * @param {string} policy
 * @param {string} [rest] Begins with a slash.
 */
export function policyPath(policy, rest = "") {
  return `/v1/policies/${encodeURIComponent(policy)}${rest}`;
}

/**
 * A query string of the values that are given.
 * @param {Record<string, string | number | boolean | null | undefined>} values
 */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text && `?${text}`;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} body
 * @param {CallOptions} [options]
 */
async function call(method, path, body, { signal, stay = false } = {}) {
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  /** @type {RequestInit} */
  const request = {
    method,
    headers: { accept: "application/json" },
    credentials: "same-origin",
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  };
  if (body !== undefined) {
    request.headers = { accept: "application/json", "content-type": "application/json" };
    request.body = JSON.stringify(body);
  }
  const [reply, text] = await exchange(path, request);
  if (!reply.ok) throw problemOf(reply, text, stay);
  if (text === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError(0, "not_json", "The reply was cut off.");
  }
}

/**
 * @param {string} path
 * @param {RequestInit} request
 * @returns {Promise<[Response, string]>}
 */
async function exchange(path, request) {
  try {
    const reply = await fetch(path, request);
    return [reply, await reply.text()];
  } catch (error) {
    throw new ApiError(0, "unreachable", messageOf(error));
  }
}

/**
 * @param {Response} reply
 * @param {string} text
 * @param {boolean} stay
 */
function problemOf(reply, text, stay) {
  let code = "http";
  let detail = `The service replied with ${reply.status}.`;
  try {
    ({ code = code, detail = detail } = JSON.parse(text));
  } catch {
    // a proxy's page, or nothing
  }
  if (reply.status === 401 && !stay && location.pathname !== LOGIN) {
    navigate(`${LOGIN}?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  return new ApiError(reply.status, code, detail, Number(reply.headers.get("retry-after")) || 0);
}
