// Scales and axes that all drawings share.

import { useEffect, useState } from "../dom.js";

/**
 * Return the function that maps a domain linearly onto a range.
 * @param {[number, number]} domain
 * @param {[number, number]} range
 * @returns {(value: number) => number}
 */
export function linear([low, high], [start, end]) {
  const span = high - low || 1;
  return (value) => start + ((value - low) / span) * (end - start);
}

/**
 * Return about `count` round numbers within a domain.
 * @param {number} low
 * @param {number} high
 * @param {number} count
 * @returns {number[]}
 */
export function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const rest = raw / power; // between 1 and 10: rounded to 1, 2, 5 or 10, whichever is nearest
  const step = power * (rest < Math.SQRT2 ? 1 : rest < Math.sqrt(10) ? 2 : rest < Math.sqrt(50) ? 5 : 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) => (first + place) * step);
}

/**
 * Return the smallest domain that has all values, a little wider than they are.
 * @param {number[]} values
 * @param {number} [margin] share of the width to add at each end
 * @returns {[number, number]}
 */
export function domain(values, margin = 0.05) {
  const found = values.filter(Number.isFinite);
  if (!found.length) return [0, 1];
  const low = Math.min(...found);
  const high = Math.max(...found);
  const room = (high - low || Math.abs(high) || 1) * margin;
  return [low - room, high + room];
}

/**
 * Return the width of an element in pixels, as it changes; 0 before it is known.
 * @param {{current: HTMLElement | null}} holder
 * @returns {number}
 */
export function useWidth(holder) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = holder.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return width;
}
