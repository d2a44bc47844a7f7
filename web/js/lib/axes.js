/**
 * What lies along the x axis: steps, time since the run began, the clock, or samples seen. Pure.
 * @typedef {import("../types").Points} Points
 * @typedef {import("../types").RunOfGroup} RunOfGroup
 * @typedef {"step" | "time" | "wall" | "samples" | "tokens"} AxisName
 */

/** @type {Record<AxisName, {title: string, times: boolean}>} */
export const AXES = {
  step: { title: "step", times: false },
  time: { title: "time since the run began", times: true },
  wall: { title: "time of day, UTC", times: true },
  samples: { title: "samples seen", times: false },
  tokens: { title: "tokens seen", times: false },
};

/**
 * Where each point of a run lies. NaN where it is not known: a run that recorded no samples, points without times.
 * @param {AxisName} axis @param {Points} points @param {RunOfGroup} run
 * @returns {number[]} steps, seconds, milliseconds since 1970, or a count
 */
export function abscissae(axis, points, run) {
  if (axis === "step") return points.steps;
  if (axis === "samples" || axis === "tokens") {
    const each = (axis === "samples" ? run.samples_per_step : run.tokens_per_step) ?? NaN;
    return points.steps.map((step) => step * each);
  }
  const { times = [] } = points;
  if (times.length !== points.steps.length) return points.steps.map(() => NaN);
  if (axis === "wall") return times.map((time) => time * 1000);
  const begun = Math.min(run.started_at ?? times[0], times[0]); // clocks of server and worker may differ
  return times.map((time) => Math.max(0, time - begun));
}

/**
 * Where the axis ends: at the last point of any curve, but along steps not before those that the longest run will make.
 * Differences end where they do: further steps of the longer run have none.
 * @param {{x: number[]}[]} curves @param {{axis: AxisName, minus: string}} settings @param {number} steps
 */
export const lastPlace = (curves, { axis, minus }, steps) =>
  curves.reduce((last, { x }) => Math.max(last, x.at(-1) ?? 0), axis === "step" && !minus ? steps : 0);

/**
 * Where a step lies between the points around it.
 * @param {number} step @param {number[]} steps rising @param {number[]} x
 */
export function placeOf(step, steps, x) {
  let low = 0,
    high = steps.length - 1;
  if (high < 0) return NaN;
  if (step <= steps[0])
    return x[0] - (steps.length > 1 ? ((steps[0] - step) * (x[high] - x[0])) / (steps[high] - steps[0] || 1) : 0);
  if (step >= steps[high])
    return step === steps[high] || steps.length < 2
      ? x[high]
      : x[high] + ((step - steps[high]) * (x[high] - x[0])) / (steps[high] - steps[0] || 1);
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle;
    else high = middle;
  }
  return x[low] + ((step - steps[low]) / (steps[high] - steps[low])) * (x[high] - x[low]);
}

/**
 * The first and last step of any curve between two places on the axis, one point further on both sides; null if none is.
 * @param {{points: Points, x: number[]}[]} curves @param {[number, number]} range
 * @returns {[number, number] | null}
 */
export function stepsWithin(curves, [from, to]) {
  let first = Infinity,
    last = -Infinity;
  for (const { points, x } of curves) {
    const inside = points.steps.filter((_, index) => x[index] >= from && x[index] <= to);
    if (inside.length) [first, last] = [Math.min(first, inside[0]), Math.max(last, inside[inside.length - 1])];
    for (let index = 1; index < x.length; index += 1) {
      if (x[index - 1] < from && x[index] >= from) first = Math.min(first, points.steps[index - 1]);
      if (x[index - 1] <= to && x[index] > to) last = Math.max(last, points.steps[index]);
    }
  }
  return first <= last ? [first, last] : null;
}

/**
 * Ticks of a span of seconds in the unit that people would use.
 * @param {number} longest seconds
 */
export function timeUnit(longest) {
  if (longest < 180) return { divisor: 1, name: "s" };
  return longest < 3 * 3600 ? { divisor: 60, name: "min" } : { divisor: 3600, name: "h" };
}
