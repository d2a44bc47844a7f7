/**
 * Zooming in: the points of the window that a chart shows, as many as are stored if they fit, over the overview.
 * @typedef {import("../types").Closeup} Closeup
 * @typedef {import("../types").Points} Points
 * @typedef {import("../types").Source} Source
 */

import { toPoints } from "./points.js";

const MOST_POINTS = 20_000; // over all curves of a chart: what is drawn within a frame or two
const PER_CURVE = 2000;
const FEWEST = 100;

/** How many points of each curve a chart asks for. @param {number} curves */
export const limitOf = (curves) => Math.max(FEWEST, Math.min(PER_CURVE, Math.floor(MOST_POINTS / Math.max(1, curves))));

/**
 * The part of the x axis that a Plotly relayout shows: null for all of it, undefined when it is not about the x axis.
 * @param {Record<string, any>} change
 * @returns {[number, number] | null | undefined}
 */
export function rangeOf(change) {
  if (change["xaxis.autorange"]) return null;
  const [from, to] = (change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]]).map(moment);
  if (from === undefined || to === undefined || Number.isNaN(from) || Number.isNaN(to)) return undefined;
  return [Math.min(from, to), Math.max(from, to)];
}

/** A place on the axis as a number; Plotly spells those of a date axis as UTC. @param {number | string | undefined} place */
const moment = (place) =>
  typeof place === "string"
    ? /^[-\d.e+]+$/i.test(place)
      ? Number(place)
      : Date.parse(`${place.replace(" ", "T").replace(/(\.\d{3})\d*$/, "$1")}${place.includes(":") ? "Z" : ""}`)
    : place;

/**
 * A window's points with what is known around them: one point before and one behind, so that lines leave the plot, and
 * those that came live since.
 * @param {Points} overview @param {Points} window @param {[number, number]} range
 * @returns {Points}
 */
export function spliced(overview, window, [from, to]) {
  const held = overview.steps;
  const before = firstAbove(held, from - 1) - 1;
  const newest = window.steps.at(-1) ?? from - 1;
  const start = firstAbove(held, Math.max(newest, from - 1));
  const end = Math.max(start, Math.min(held.length, firstAbove(held, to) + 1));
  const around = (/** @type {number[]} */ inner, /** @type {number[]} */ outer) => [
    ...(before >= 0 ? [outer[before]] : []),
    ...inner,
    ...outer.slice(start, end),
  ];
  return {
    ...window,
    steps: around(window.steps, overview.steps),
    values: around(window.values, overview.values),
    times: window.times?.length && overview.times?.length ? around(window.times, overview.times) : [],
  };
}

/** The index of the first step above `limit`, by halving. @param {number[]} steps @param {number} limit */
function firstAbove(steps, limit) {
  let low = 0,
    high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The points that a chart draws: the store's, and within a close-up its own. @param {Source} store @param {Closeup | null} closeup @returns {Source} */
export function lookingAt(store, closeup) {
  if (!closeup) return store;
  return {
    get(run, name) {
      const overview = store.get(run, name);
      const window = name === closeup.name ? closeup.points.get(run) : undefined;
      return overview && window ? spliced(overview, window, closeup.range) : overview;
    },
  };
}

/**
 * Reads close-ups: one request for all curves of a chart.
 * @param {string} url @param {() => Record<string, string>} more what else to ask for
 * @returns {(name: string, range: [number, number], curves: number) => Promise<Closeup>}
 */
export function closeupLoader(url, more = () => ({})) {
  return async (name, range, curves) => {
    const query = {
      names: name,
      from: String(range[0]),
      to: String(range[1]),
      max_points: String(limitOf(curves)),
      ...more(),
    };
    const response = await fetch(`${url}?${new URLSearchParams(query)}`);
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    /** @type {Map<number, Points>} */
    const points = new Map();
    for (const { run_id: run, attempt, series } of (await response.json()).runs)
      if (series[name]) points.set(run, toPoints(series[name], attempt));
    return { name, range, points };
  };
}
