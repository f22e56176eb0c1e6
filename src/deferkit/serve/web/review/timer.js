// Active time: it stands still while the page is hidden and while nobody does anything. A minute without a sign of
// activity is not counted, also not after the fact.

const IDLE_MS = 60_000;
const TICK_MS = 500;
const SIGNS = ["pointermove", "pointerdown", "keydown", "wheel", "scroll", "touchstart", "input"];

/** Counts the seconds in which somebody works at this page. */
export class ActiveTimer {
  /** @param {() => void} ticked Called about twice a second, also while the time stands still. */
  constructor(ticked) {
    this.ticked = ticked;
    this.seconds = 0;
    this.sinceSign = 0; // of the seconds, those after the last sign of activity
    this.counting = false;
    this.lastSign = performance.now();
    this.lastTick = performance.now();
  }

  /** Whether somebody is here: the page is visible, and something was moved, pressed or scrolled in the last minute. */
  get active() {
    return !document.hidden && performance.now() - this.lastSign < IDLE_MS;
  }

  /** Begin to listen; returns what ends it. */
  start() {
    const sign = () => {
      this.lastSign = performance.now();
      this.sinceSign = 0;
    };
    const tick = () => {
      const now = performance.now();
      // after a sleep of the machine the step is long: that was not work
      if (this.counting && this.active) {
        const step = Math.min(now - this.lastTick, 4 * TICK_MS) / 1000;
        this.seconds += step;
        this.sinceSign += step;
      } else if (this.counting && now - this.lastSign >= IDLE_MS) {
        this.seconds -= this.sinceSign; // nobody was here
        this.sinceSign = 0;
      }
      this.lastTick = now;
      this.ticked();
    };
    const seen = () => {
      if (!document.hidden) sign();
      this.lastTick = performance.now();
    };
    for (const name of SIGNS) addEventListener(name, sign, { passive: true, capture: true });
    document.addEventListener("visibilitychange", seen);
    const ticking = setInterval(tick, TICK_MS);
    return () => {
      clearInterval(ticking);
      document.removeEventListener("visibilitychange", seen);
      for (const name of SIGNS) removeEventListener(name, sign, { capture: true });
    };
  }

  /**
   * Count for another task.
   * @param {number} seconds What was counted for it before.
   */
  restart(seconds) {
    this.seconds = seconds;
    this.sinceSign = 0;
    this.counting = true;
    this.lastTick = performance.now();
  }

  stop() {
    this.counting = false;
  }
}

/**
 * The cost that active time comes to, with as many digits as matter.
 * @param {number} seconds
 * @param {number} unitS Seconds in a unit of the resource.
 */
export function costOf(seconds, unitS) {
  const cost = seconds / unitS;
  return Number(cost.toFixed(cost < 10 ? 2 : 1));
}
