/**
 * Ranges on the axes of parallel coordinates, and which runs they leave. Pure: no DOM.
 * A range is kept in shares of the axis: 0 at its foot, 1 at its top.
 * @typedef {{key: string, ys: (number | null)[]}} Axis
 * @typedef {[number, number]} Range
 */

/** @param {number} value */
const clamp = (value) => Math.min(1, Math.max(0, value));

/** A place in the drawing as a share of the axis. @param {number} y @param {number} top @param {number} bottom */
export const shareOf = (y, top, bottom) => (bottom - y) / (bottom - top);

/** Two ends in any order as a range; null when it leaves nothing out. @param {number} one @param {number} other @returns {Range | null} */
export function rangeOf(one, other) {
  const [low, high] = [clamp(Math.min(one, other)), clamp(Math.max(one, other))];
  return low <= 0 && high >= 1 ? null : [low, high];
}

/**
 * Whether each run lies within every range; a run without a value on a ranged axis does not. A value below the foot (NaN
 * and infinities are drawn there) is only kept by an axis without a range.
 * @param {Axis[]} axes @param {Map<string, Range>} ranges @param {number} count @param {number} top @param {number} bottom
 */
export function kept(axes, ranges, count, top, bottom) {
  const ranged = axes.filter(({ key }) => ranges.has(key));
  return Array.from({ length: count }, (_, run) =>
    ranged.every(({ key, ys }) => {
      const [low, high] = /** @type {Range} */ (ranges.get(key));
      const y = ys[run];
      if (y === null) return false;
      const share = shareOf(y, top, bottom);
      return share >= low - 1e-6 && share <= high + 1e-6;
    }),
  );
}

/** Ranges as the address has them: `key:0.200-0.755`. @param {Map<string, Range>} ranges */
export const spelled = (ranges) =>
  [...ranges].map(([key, [low, high]]) => `${key}:${low.toFixed(3)}-${high.toFixed(3)}`);

/** Ranges of an address; what is no range of a known axis is left out. @param {string[]} words @param {Axis[]} axes */
export function parsed(words, axes) {
  /** @type {Map<string, Range>} */
  const ranges = new Map();
  for (const word of words) {
    const found = /^(.+):(\d(?:\.\d+)?)-(\d(?:\.\d+)?)$/.exec(word);
    const range = found && rangeOf(Number(found[2]), Number(found[3]));
    if (found && range && axes.some(({ key }) => key === found[1])) ranges.set(found[1], range);
  }
  return ranges;
}
