/**
 * Figures over the points of several runs: means, bands, robust ranges, non-finite values. Pure.
 * @typedef {import("../types").Points} Points
 */

/**
 * Mean, lowest and highest over runs, at steps where every run has a value. Thinned runs are averaged by bin, so that
 * curves of different sampling stay comparable; a bin in which any run is not finite is a gap, never a mean of the rest.
 * @param {Points[]} runs @param {number[][]} xs where the points lie along the axis; their steps by default
 */
export function across(runs, xs = runs.map(({ steps }) => steps)) {
  const width = Math.max(...runs.map((run) => (run.kind === "binned" ? run.binWidth : 1)));
  /** @type {Map<number, {step: number, sums: number[], counts: number[], places: number[]}>} */
  const bins = new Map();
  runs.forEach((run, index) => {
    run.steps.forEach((step, at) => {
      const key = Math.floor(step / width);
      const bin = bins.get(key) ?? {
        step,
        sums: new Array(runs.length).fill(0),
        counts: new Array(runs.length).fill(0),
        places: new Array(runs.length).fill(NaN),
      };
      bin.step = Math.max(bin.step, step);
      bin.sums[index] += run.values[at];
      bin.counts[index] += 1;
      bin.places[index] = xs[index][at];
      bins.set(key, bin);
    });
  });
  /** @type {{steps: number[], x: number[], mean: (number | null)[], low: (number | null)[], high: (number | null)[]}} */
  const result = { steps: [], x: [], mean: [], low: [], high: [] };
  for (const [, bin] of [...bins].sort((a, b) => a[0] - b[0])) {
    if (bin.counts.some((count) => count === 0)) continue;
    const values = bin.sums.map((sum, index) => sum / bin.counts[index]);
    const finite = values.every(Number.isFinite);
    result.steps.push(bin.step);
    result.x.push(xs[0] === runs[0].steps ? bin.step : bin.places.reduce((a, b) => a + b, 0) / runs.length);
    result.mean.push(finite ? values.reduce((a, b) => a + b, 0) / values.length : null);
    result.low.push(finite ? Math.min(...values) : null);
    result.high.push(finite ? Math.max(...values) : null);
  }
  return result;
}

/** The quantile of sorted numbers, linearly interpolated. @param {ArrayLike<number>} sorted @param {number} q */
export function quantile(sorted, q) {
  const at = (sorted.length - 1) * q;
  const low = Math.floor(at);
  return sorted[low] + ((sorted[low + 1] ?? sorted[low]) - sorted[low]) * (at - low);
}

/**
 * The axis range that shows the bulk of the values: one spike does not flatten every curve.
 * @param {number[]} values finite or not
 * @param {{log?: boolean, zero?: boolean}} axis
 * @returns {{range: [number, number], full: [number, number], clips: boolean} | null} in axis units, log10 on log axes
 */
export function robustRange(values, { log = false, zero = false } = {}) {
  const finite = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (!finite.length) return null;
  const usable = Float64Array.from(log ? finite.map(Math.log10) : finite).sort(); // by value, many times faster than an array
  const [min, max] = [usable[0], usable[usable.length - 1]];
  let [low, high] = [min, max];
  if (usable.length >= 20) {
    const [q1, q99] = [quantile(usable, 0.01), quantile(usable, 0.99)];
    const reach = 1.5 * (q99 - q1 || Math.abs(q99) * 0.05 || 1);
    low = Math.max(min, q1 - reach);
    high = Math.min(max, q99 + reach);
  }
  const clips = low > min || high < max;
  return { range: padded(low, high, zero && !log), full: padded(min, max, zero && !log), clips };
}

/** @param {number} low @param {number} high @param {boolean} zero @returns {[number, number]} */
function padded(low, high, zero) {
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 0.5;
  return [zero && low >= 0 ? 0 : low - pad, high + pad];
}

/** @typedef {{nan: number, up: number, down: number, first: number | null}} NonFinite */

/** Which values of a series are not finite: how many of each kind, and the first step. @param {Points} points */
export function nonFinite({ steps, values }) {
  /** @type {NonFinite} */
  const found = { nan: 0, up: 0, down: 0, first: null };
  values.forEach((value, index) => {
    if (Number.isFinite(value)) return;
    found[kindOf(value)] += 1;
    found.first ??= steps[index];
  });
  return found;
}

/** @param {number} value one that is not finite @returns {"nan" | "up" | "down"} */
const kindOf = (value) => (Number.isNaN(value) ? "nan" : value > 0 ? "up" : "down");

/**
 * Stretches of consecutive values that are not finite: kind, first step, last step.
 * @param {Points} points
 * @returns {["nan" | "up" | "down", number, number][]}
 */
export function stretches({ steps, values }) {
  /** @type {["nan" | "up" | "down", number, number][]} */
  const found = [];
  /** @type {["nan" | "up" | "down", number, number] | null} */
  let open = null;
  values.forEach((value, index) => {
    const kind = Number.isFinite(value) ? null : kindOf(value);
    if (open && open[0] === kind) open[2] = steps[index];
    else if (kind) found.push((open = [kind, steps[index], steps[index]]));
    if (!kind) open = null;
  });
  return found;
}

/** Stretches of consecutive values at or below zero: first place, last place. @param {number[]} x @param {number[]} values @returns {[number, number][]} */
export function nonPositive(x, values) {
  /** @type {[number, number][]} */
  const found = [];
  values.forEach((value, index) => {
    if (!(value <= 0) || !Number.isFinite(value)) return;
    if (index && values[index - 1] <= 0 && found.length) found[found.length - 1][1] = x[index];
    else found.push([x[index], x[index]]);
  });
  return found;
}

/** "NaN since step 700" for people. @param {NonFinite} found */
export function nonFiniteText({ nan, up, down, first }) {
  const kinds = [nan && "NaN", up && "+∞", down && "−∞"].filter(Boolean);
  return kinds.length ? `${kinds.join(", ")} since step ${first}` : "";
}

/** Ticks of a log axis over a range in log10: 1, 2, 5 of each decade, or whole decades. @param {[number, number]} range */
export function decadeTicks([low, high]) {
  return high - low <= 2.2 ? { dtick: "D2" } : { dtick: Math.max(1, Math.round((high - low) / 6)) };
}

/** Ticks at powers of two for a range in log10, at most about six of them. @param {[number, number]} range */
export function powerTicks([low, high]) {
  const [first, last] = [Math.ceil(low / Math.log10(2)), Math.floor(high / Math.log10(2))];
  const step = Math.max(1, Math.ceil((last - first + 1) / 6));
  const powers = [];
  for (let power = Math.ceil(first / step) * step; power <= last; power += step) powers.push(power);
  return {
    tickmode: "array",
    tickvals: powers.map((power) => 2 ** power),
    ticktext: powers.map((power) => `2<sup>${power}</sup>`),
  };
}
