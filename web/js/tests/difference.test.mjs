import assert from "node:assert/strict";
import { test } from "node:test";

import { nextStep } from "../lib/difference.js";
import { PointStore } from "../lib/points.js";

const store = new PointStore();
store.load(1, "train/loss", { steps: [1, 2, 3], values: [0, 0, 0] });
store.load(2, "train/loss", { steps: [1, 2], values: [1, 1] });

test("differences go on after the step that the slowest run has", () => {
  assert.equal(nextStep(store, [1], ["train/loss"]), 4);
  assert.equal(nextStep(store, [1, 2], ["train/loss"]), 3);
});

test("a series without points is asked for from the start", () => {
  assert.equal(nextStep(store, [1, 3], ["train/loss"]), undefined);
  assert.equal(nextStep(store, [], []), undefined);
});
