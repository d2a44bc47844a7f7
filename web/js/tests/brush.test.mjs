import assert from "node:assert/strict";
import test from "node:test";

import { kept, parsed, rangeOf, shareOf, spelled } from "../lib/brush.js";

const axes = [
  { key: "lr", ys: [274, 154, 34, null] },
  { key: "eval/accuracy", ys: [34, 34, 292, 274] },
];

test("a place is a share of its axis, the foot being 0", () => {
  assert.equal(shareOf(274, 34, 274), 0);
  assert.equal(shareOf(34, 34, 274), 1);
});

test("ends come in any order, and the whole axis is no range", () => {
  assert.deepEqual(rangeOf(0.8, 0.2), [0.2, 0.8]);
  assert.deepEqual(rangeOf(-3, 0.5), [0, 0.5]);
  assert.equal(rangeOf(1.2, -0.1), null);
});

test("a run is kept that lies within every range", () => {
  assert.deepEqual(kept(axes, new Map(), 4, 34, 274), [true, true, true, true]);
  assert.deepEqual(kept(axes, new Map([["lr", [0, 0.5]]]), 4, 34, 274), [true, true, false, false]);
  assert.deepEqual(
    kept(
      axes,
      new Map([
        ["lr", [0.4, 1]],
        ["eval/accuracy", [0.9, 1]],
      ]),
      4,
      34,
      274,
    ),
    [false, true, false, false],
  );
});

test("what is not finite lies below the foot and in no range", () => {
  assert.deepEqual(kept(axes, new Map([["eval/accuracy", [0, 0.9]]]), 4, 34, 274), [false, false, false, true]);
});

test("ranges survive the address, and nonsense in it is left out", () => {
  const ranges = new Map([
    ["lr", [0.25, 0.75]],
    ["eval/accuracy", [0.5, 1]],
  ]);
  assert.deepEqual(parsed(spelled(ranges), axes), ranges);
  assert.deepEqual(parsed(["nobody:0.1-0.2", "lr:x-y", "lr", "lr:0-1"], axes), new Map());
});
