import assert from "node:assert/strict";
import { test } from "node:test";

import { PointStore, thin, toNumbers } from "../lib/points.js";

test("figures that JSON cannot spell come back as they were", () => {
  assert.deepEqual(toNumbers([1.5, "NaN", "Infinity", "-Infinity"]), [1.5, NaN, Infinity, -Infinity]);
});

test("only new steps are appended", () => {
  const store = new PointStore();
  store.load(7, "train/loss", { steps: [1, 2], values: [5, 4], num_stored: 2 }, 1);
  assert.equal(store.append(7, "train/loss", { steps: [2, 3], values: [9, 3] }, 1), true);
  assert.deepEqual(store.get(7, "train/loss").values, [5, 4, 3]);
  assert.equal(store.append(7, "train/loss", { steps: [3], values: [8] }, 1), false);
});

test("a newer attempt replaces the steps it writes again, an older one is ignored", () => {
  const store = new PointStore();
  store.append(7, "x", { steps: [1, 2, 3], values: [1, 1, 1] }, 1);
  store.append(7, "x", { steps: [2, 3], values: [2, 2] }, 2);
  assert.deepEqual(store.get(7, "x").values, [1, 2, 2]);
  assert.equal(store.append(7, "x", { steps: [4], values: [9] }, 1), false);
});

test("thinning keeps every spike, every kind of non-finite value and both ends", () => {
  const steps = Array.from({ length: 10_000 }, (_, index) => index + 1);
  const values = steps.map((step) => Math.sin(step / 50));
  values[1234] = 1e9;
  values[5678] = -1e9;
  values[7000] = NaN;
  values[7001] = Infinity;
  values[7002] = -Infinity;
  const thinned = thin({ steps, values, attempt: 1, stored: steps.length, kind: "exact", binWidth: 1 }, 500);
  assert.ok(thinned.steps.length <= 510);
  for (const step of [1, 1235, 5679, 7001, 7002, 7003, 10_000]) assert.ok(thinned.steps.includes(step), `step ${step}`);
  assert.equal(thinned.stored, 10_000);
  assert.deepEqual(
    thinned.steps,
    [...thinned.steps].sort((a, b) => a - b),
  );
});

test("a long live series stays short in memory and knows how much is stored", () => {
  const store = new PointStore(100);
  for (let step = 1; step <= 5000; step += 1)
    store.append(1, "x", { steps: [step], values: [step === 2500 ? 77 : 0] }, 1);
  const held = store.get(1, "x");
  assert.ok(held.steps.length <= 200);
  assert.equal(held.stored, 5000);
  assert.ok(held.values.includes(77));
});

test("points that came live while the history was being fetched stay", () => {
  const store = new PointStore();
  store.append(1, "x", { steps: [3, 4], values: [3, 4] }, 1);
  store.merge(1, "x", { steps: [1, 2, 3], values: [1, 2, 3], num_stored: 3 }, 1);
  assert.deepEqual(store.get(1, "x").steps, [1, 2, 3, 4]);
  assert.equal(store.get(1, "x").stored, 4);
});

test("a window with times keeps them when the same points were held without", () => {
  const store = new PointStore();
  store.load(1, "x", { steps: [1, 2, 3], values: [1, 2, 3] }, 1);
  store.merge(1, "x", { steps: [1, 2, 3], values: [1, 2, 3], times: [10, 20, 30] }, 1);
  assert.deepEqual(store.get(1, "x").times, [10, 20, 30]);
});
