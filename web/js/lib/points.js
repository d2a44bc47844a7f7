/**
 * The points of many runs in memory. Pure: no DOM, no network.
 * @typedef {{steps: number[], values: number[], attempt: number, stored: number, kind: string, binWidth: number}} Points
 */

/** Figures travel as JSON, where NaN and infinities are spelled out; `Number` reads the names back. */
export const toNumbers = (values) => values.map((value) => (value === null ? NaN : Number(value)));

export class PointStore {
  /** @param {number} limit points kept per series; above twice of it the series is thinned */
  constructor(limit = 500) {
    this.limit = limit;
    /** @type {Map<number, Map<string, Points>>} */
    this.runs = new Map();
  }

  /** @returns {Points | undefined} */
  get(run, name) {
    return this.runs.get(run)?.get(name);
  }

  /** The highest step that any series of the run has; -1 when there is none. */
  lastStep(run) {
    let last = -1;
    for (const { steps } of this.runs.get(run)?.values() ?? []) last = Math.max(last, steps.at(-1) ?? -1);
    return last;
  }

  /** Replace a series by a window as the server gave it. */
  load(run, name, { steps, values, kind = "exact", num_stored: stored = steps.length, bin_width: binWidth = null }, attempt = 0) {
    this.#put(run, name, { steps: [...steps], values: toNumbers(values), attempt, stored, kind, binWidth: binWidth ?? 1 });
  }

  /**
   * Add new points of an attempt. Steps already held are dropped, except that a newer attempt replaces them: it wins.
   * @returns {boolean} whether anything changed
   */
  append(run, name, { steps, values }, attempt = 0) {
    if (!steps.length) return false;
    const held = this.get(run, name) ?? { steps: [], values: [], attempt, stored: 0, kind: "exact", binWidth: 1 };
    if (attempt < held.attempt) return false;
    if (attempt > held.attempt && held.attempt > 0) {
      const keep = held.steps.findIndex((step) => step >= steps[0]);
      if (keep >= 0) {
        held.stored -= held.steps.length - keep;
        held.steps.length = held.values.length = keep;
      }
    }
    held.attempt = attempt;
    const last = held.steps.at(-1) ?? -Infinity;
    const numbers = toNumbers(values);
    let added = 0;
    steps.forEach((step, index) => {
      if (step <= last) return;
      held.steps.push(step);
      held.values.push(numbers[index]);
      added += 1;
    });
    held.stored += added;
    this.#put(run, name, held.steps.length > 2 * this.limit ? thin(held, this.limit) : held);
    return added > 0;
  }

  #put(run, name, points) {
    if (!this.runs.has(run)) this.runs.set(run, new Map());
    this.runs.get(run).set(name, points);
  }
}

/**
 * Fewer points: of each bin the first, last, lowest, highest and every kind of non-finite value stay.
 * @param {Points} points
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
  return { ...points, steps: order.map((i) => points.steps[i]), values: order.map((i) => points.values[i]), kind: "binned", binWidth: Math.max(width, points.binWidth) };
}

function extremes(values, start, end) {
  const found = [start, end - 1];
  let low = -1, high = -1;
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
