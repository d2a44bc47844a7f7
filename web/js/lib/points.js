/**
 * The points of many runs in memory. Pure: no DOM, no network.
 * @typedef {import("../types").Points} Points
 * @typedef {import("../types").Window} Window
 */

/**
 * Figures travel as JSON, where NaN and infinities are spelled out; `Number` reads the names back.
 * @param {(number | string | null)[]} values
 */
export const toNumbers = (values) => values.map((value) => (value === null ? NaN : Number(value)));

/** A window as the server gave it. @param {Window} window @param {number} attempt @returns {Points} */
export function toPoints(
  { steps, values, times = [], kind = "exact", num_stored: stored = steps.length, bin_width: binWidth = null },
  attempt,
) {
  return {
    steps: [...steps],
    values: toNumbers(values),
    times: toNumbers(times),
    attempt,
    stored,
    kind,
    binWidth: binWidth ?? 1,
  };
}

export class PointStore {
  /** @param {number} limit points kept per series; above twice of it the series is thinned */
  constructor(limit = 500) {
    this.limit = limit;
    /** @type {Map<number, Map<string, Points>>} */
    this.runs = new Map();
  }

  /** @param {number} run @param {string} name */
  get(run, name) {
    return this.runs.get(run)?.get(name);
  }

  /** @param {number} run @param {string} name @param {Points} points */
  put(run, name, points) {
    const held = this.runs.get(run) ?? new Map();
    this.runs.set(run, held.set(name, points));
  }

  /**
   * Replace a series by a window as the server gave it.
   * @param {number} run @param {string} name @param {Window} window @param {number} attempt
   */
  load(run, name, window, attempt = 0) {
    this.put(run, name, toPoints(window, attempt));
  }

  /**
   * A window from the server under the points that came live meanwhile: what it lacks of those is kept.
   * @param {number} run @param {string} name @param {Window} window @param {number} attempt
   */
  merge(run, name, window, attempt = 0) {
    const live = this.get(run, name);
    this.load(run, name, window, attempt);
    if (live && live.attempt >= attempt) this.append(run, name, live, live.attempt);
  }

  /**
   * Add new points of an attempt. Steps already held are dropped, except that a newer attempt replaces them: it wins.
   * @param {number} run @param {string} name @param {Window} window @param {number} attempt
   * @returns {boolean} whether anything changed
   */
  append(run, name, { steps, values, times = [] }, attempt = 0) {
    if (!steps.length) return false;
    const held = this.get(run, name) ?? {
      steps: [],
      values: [],
      times: [],
      attempt,
      stored: 0,
      kind: "exact",
      binWidth: 1,
    };
    if (attempt < held.attempt) return false;
    if (attempt > held.attempt) cut(held, steps[0]);
    held.attempt = attempt;
    const last = held.steps.at(-1) ?? -Infinity;
    if (steps[steps.length - 1] <= last) return false; // and points without times take none away
    const numbers = toNumbers(values),
      moments = toNumbers(times);
    if (held.times?.length !== held.steps.length || moments.length !== numbers.length)
      ((held.times = []), (moments.length = 0));
    const before = held.steps.length;
    steps.forEach((step, index) => {
      if (step > last)
        (held.steps.push(step), held.values.push(numbers[index]), moments.length && held.times?.push(moments[index]));
    });
    const added = held.steps.length - before;
    held.stored += added;
    this.put(run, name, held.steps.length > 2 * this.limit ? thin(held, this.limit) : held);
    return added > 0;
  }
}

/** Forget the points from a step on: a newer attempt writes them again. @param {Points} points @param {number} step */
function cut(points, step) {
  const keep = points.steps.findIndex((held) => held >= step);
  if (keep < 0) return;
  points.stored -= points.steps.length - keep;
  points.steps.length = points.values.length = keep;
  points.times?.splice(keep);
}

/**
 * Fewer points: of each bin the first, last, lowest, highest and every kind of non-finite value stay.
 * @param {Points} points @param {number} limit
 * @returns {Points}
 */
export function thin(points, limit) {
  const count = points.steps.length;
  const bins = Math.max(1, Math.floor(limit / 4));
  const first = points.steps[0];
  const width = Math.max(1, Math.ceil((points.steps[count - 1] - first + 1) / bins));
  const kept = new Set([0, count - 1]);
  let start = 0;
  while (start < count) {
    const bin = Math.floor((points.steps[start] - first) / width);
    let end = start;
    while (end < count && Math.floor((points.steps[end] - first) / width) === bin) end += 1;
    for (const index of extremes(points.values, start, end)) kept.add(index);
    start = end;
  }
  const order = [...kept].sort((a, b) => a - b);
  const binWidth = Math.max(width, points.binWidth);
  return {
    ...points,
    steps: order.map((i) => points.steps[i]),
    values: order.map((i) => points.values[i]),
    times: (points.times ?? []).length ? order.map((i) => Number(points.times?.[i])) : [],
    kind: "binned",
    binWidth,
  };
}

/** @param {number[]} values @param {number} start @param {number} end @returns {number[]} */
function extremes(values, start, end) {
  const found = [start, end - 1];
  let low = -1,
    high = -1;
  /** @type {Map<string, number>} */
  const special = new Map();
  for (let index = start; index < end; index += 1) {
    const value = values[index];
    if (!Number.isFinite(value)) {
      if (!special.has(String(value))) special.set(String(value), index);
      continue;
    }
    if (low < 0 || value < values[low]) low = index;
    if (high < 0 || value > values[high]) high = index;
  }
  if (low >= 0) found.push(low, high);
  return [...found, ...special.values()];
}
