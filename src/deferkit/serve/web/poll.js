// Reading again and again, while somebody looks.

import { get } from "./api.js";
import { useEffect, useRef, useState } from "./dom.js";

const LONGEST_MS = 30_000;

/**
 * @template T
 * @typedef {object} Polled
 * @property {T | null} data The latest reply; it stays when a later call fails.
 * @property {unknown} error Why the latest call failed; null if it did not.
 * @property {boolean} stale There is data, and the latest call failed.
 * @property {() => void} refresh Read now.
 */

/**
 * Call `read` now and every `ms` milliseconds while the page is visible.
 * After failures the pauses grow to half a minute; when the page becomes visible it reads at once.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} read
 * @param {number} ms
 * @param {readonly unknown[]} [inputs] Start anew, without data, when one of them changes.
 * @returns {Polled<T>}
 */
export function usePoll(read, ms, inputs = []) {
  const [state, setState] = useState(/** @type {{ data: T | null, error: unknown }} */ ({ data: null, error: null }));
  const latest = useRef(read);
  latest.current = read;
  const refresh = useRef(() => {});
  useEffect(() => {
    setState({ data: null, error: null });
    const stop = new AbortController();
    let timer = 0;
    let failures = 0;
    let running = false;
    const again = () => {
      clearTimeout(timer);
      const pause = failures ? Math.min(ms * 2 ** Math.min(failures, 6), Math.max(LONGEST_MS, ms)) : ms;
      if (!document.hidden && !stop.signal.aborted) timer = setTimeout(once, pause);
    };
    const once = async () => {
      if (running || stop.signal.aborted) return;
      running = true;
      clearTimeout(timer);
      try {
        const data = await latest.current(stop.signal);
        failures = 0;
        if (!stop.signal.aborted) setState({ data, error: null });
      } catch (error) {
        failures += 1;
        if (!stop.signal.aborted) setState((before) => ({ data: before.data, error }));
      } finally {
        running = false;
        again();
      }
    };
    const seen = () => (document.hidden ? clearTimeout(timer) : void once());
    refresh.current = () => void once();
    document.addEventListener("visibilitychange", seen);
    addEventListener("online", seen);
    if (!document.hidden) void once();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
      removeEventListener("online", seen);
    };
  }, [ms, ...inputs]);
  return { ...state, stale: state.data !== null && state.error !== null, refresh: () => refresh.current() };
}

/**
 * Read a reply of the service now and every `ms` milliseconds; anew, without data, when its path changes.
 * @param {string} path
 * @param {number} ms
 * @returns {Polled<any>}
 */
export function useReply(path, ms) {
  return usePoll((signal) => get(path, { signal }), ms, [path]);
}
