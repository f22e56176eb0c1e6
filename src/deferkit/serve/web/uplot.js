// uPlot, loaded when the first chart is drawn.

/** @typedef {typeof import("./vendor/uPlot.js")} UPlot */

const SOURCE = "/web/vendor/uPlot.iife.min.js";
const STYLE = "/web/vendor/uPlot.min.css";
/** @type {Promise<UPlot> | null} */
let loading = null;

/** The class uPlot; the same promise again after the first call. */
export function loadUPlot() {
  loading ??= new Promise((resolve, reject) => {
    const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: STYLE });
    const script = Object.assign(document.createElement("script"), { src: SOURCE });
    script.onload = () => resolve(/** @type {{ uPlot: UPlot }} */ (/** @type {unknown} */ (window)).uPlot);
    script.onerror = () => reject(new Error("The charts could not be loaded."));
    document.head.append(style, script);
  });
  return loading;
}
