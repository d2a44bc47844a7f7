import assert from "node:assert/strict";
import { test } from "node:test";

import {
  across,
  decadeTicks,
  nonFinite,
  nonFiniteText,
  powerTicks,
  quantile,
  robustRange,
  stretches,
} from "../lib/summary.js";

const series = (values, extra = {}) => ({
  steps: values.map((_, index) => index + 1),
  values,
  attempt: 1,
  stored: values.length,
  kind: "exact",
  binWidth: 1,
  ...extra,
});

test("mean and band run over the steps that every run has", () => {
  const result = across([series([1, 2, 3]), series([3, 4])]);
  assert.deepEqual(result.steps, [1, 2]);
  assert.deepEqual(result.mean, [2, 3]);
  assert.deepEqual(result.low, [1, 2]);
  assert.deepEqual(result.high, [3, 4]);
});

test("a NaN in one run leaves a gap, never a mean of the others", () => {
  assert.deepEqual(across([series([1, NaN, 3]), series([1, 1, 1])]).mean, [1, null, 2]);
});

test("thinned runs of different sampling are averaged by bin", () => {
  const binned = {
    steps: [1, 4, 11, 14],
    values: [2, 4, 10, 20],
    attempt: 1,
    stored: 100,
    kind: "binned",
    binWidth: 10,
  };
  const other = { ...binned, steps: [2, 3, 12], values: [6, 8, 30] };
  assert.deepEqual(across([binned, other]).mean, [5, 22.5]);
});

test("one spike does not set the scale, and full range still has it", () => {
  const values = Array.from({ length: 200 }, (_, index) => 1 + index / 200);
  values[50] = 1e6;
  const { range, full, clips } = robustRange(values);
  assert.equal(clips, true);
  assert.ok(range[1] < 10);
  assert.ok(full[1] > 1e6);
});

test("a handful of points is never clipped, non-finite ones never count", () => {
  assert.equal(robustRange([1, 1, 1, 500]).clips, false);
  assert.deepEqual(robustRange([NaN, Infinity]), null);
  assert.deepEqual(robustRange([0, 10], { zero: true }).range[0], 0);
  assert.deepEqual(robustRange([10, 1000, 0], { log: true }).full.map(Math.round), [1, 3]);
});

test("quantiles are interpolated", () => assert.equal(quantile([0, 10], 0.25), 2.5));

test("non-finite values are counted by kind and told from their first step", () => {
  const found = nonFinite(series([1, NaN, Infinity, NaN, -Infinity]));
  assert.deepEqual(found, { nan: 2, up: 1, down: 1, first: 2 });
  assert.equal(nonFiniteText(found), "NaN, +∞, −∞ since step 2");
  assert.equal(nonFiniteText(nonFinite(series([1]))), "");
});

test("stretches join neighbours of one kind", () => {
  assert.deepEqual(stretches(series([NaN, NaN, 1, Infinity, NaN])), [
    ["nan", 1, 2],
    ["up", 4, 4],
    ["nan", 5, 5],
  ]);
});

test("log axes are ticked at powers of two, or at decades", () => {
  const { tickvals, ticktext } = powerTicks([Math.log10(2 ** 10), Math.log10(2 ** 13)]);
  assert.deepEqual(tickvals, [1024, 2048, 4096, 8192]);
  assert.equal(ticktext[0], "2<sup>10</sup>");
  assert.ok(powerTicks([-10, 10]).tickvals.length <= 8);
  assert.deepEqual(decadeTicks([0, 1]), { dtick: "D2" });
  assert.deepEqual(decadeTicks([0, 12]), { dtick: 2 });
});
