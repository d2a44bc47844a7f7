/**
 * How the charts of a page are drawn, as the address says it: axis, smoothing, window, log scales, full ranges, references.
 * @typedef {import("./axes.js").AxisName} AxisName
 * @typedef {{axis: AxisName, smooth: number, range: [number, number] | null, log: Set<string>, full: Set<string>, pinned: string, minus: string}} ChartSettings
 */

import { AXES } from "./axes.js";

export const NAMES = ["x", "smooth", "window", "log", "full", "pin", "minus"];
const MOST = 0.99;

/** `minus`: the runs, with commas, whose mean is taken off each curve. What a query says; what it says wrong is left out. Pure. @param {string} search @returns {ChartSettings} */
export function settingsOf(search) {
  const query = new URLSearchParams(search);
  const axis = /** @type {AxisName} */ (query.get("x") ?? "step");
  const smooth = Number(query.get("smooth") ?? 0);
  const window = (query.get("window") ?? "").split("..").map(Number);
  return {
    axis: Object.hasOwn(AXES, axis) ? axis : "step",
    smooth: smooth > 0 ? Math.min(smooth, MOST) : 0,
    range:
      window.length === 2 && window.every(Number.isFinite) && window[0] < window[1] ? [window[0], window[1]] : null,
    log: new Set(query.getAll("log")),
    full: new Set(query.getAll("full")),
    pinned: query.get("pin") ?? "",
    minus: /^\d+(,\d+)*$/.test(query.get("minus") ?? "") ? (query.get("minus") ?? "") : "",
  };
}

/** The settings as values by name; defaults are not spelled. Pure. @param {ChartSettings} settings @returns {Record<string, string[]>} */
export function spelledSettings({ axis, smooth, range, log, full, pinned, minus }) {
  return {
    x: axis === "step" ? [] : [axis],
    smooth: smooth ? [String(smooth)] : [],
    window: range ? [range.map((end) => Number(end.toPrecision(12))).join("..")] : [],
    log: [...log],
    full: [...full],
    pin: pinned ? [pinned] : [],
    minus: minus ? [minus] : [],
  };
}
