/** Smoothing of curves, for the eye only: figures, tables and downloads stay raw. Pure. */

/**
 * An exponential moving average without the pull of its start (Kingma and Ba 2015, section 3). The weight counts per typical
 * distance of points, so that thinned curves are smoothed like whole ones. Values that are not finite stay as they are and
 * move nothing.
 * @param {number[]} steps rising @param {number[]} values @param {number} weight from 0 (none) to below 1
 */
export function smoothed(steps, values, weight) {
  if (!(weight > 0) || values.length < 3) return values;
  const typical = (steps[steps.length - 1] - steps[0]) / (steps.length - 1) || 1;
  let sum = 0,
    norm = 0,
    last = steps[0] - typical;
  return values.map((value, index) => {
    if (!Number.isFinite(value)) return value;
    const keep = weight ** Math.max(1e-9, (steps[index] - last) / typical);
    last = steps[index];
    sum = keep * sum + (1 - keep) * value;
    norm = keep * norm + (1 - keep);
    return sum / norm;
  });
}
