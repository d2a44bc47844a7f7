import assert from "node:assert/strict";
import { test } from "node:test";

import { errorText, shareText, windowBox } from "../lib/whatif.js";

const picture = { cell: 10, low: -40, high: 10, windows: { fp16: [-25, -14, 15], bf16: [-134, -126, 127] } };

test("a scale moves the window down by its power, and what is outside of the picture is cut", () => {
  assert.deepEqual(windowBox(picture, "fp16", 0), { x: 150, width: 360 });
  assert.deepEqual(windowBox(picture, "fp16", 10), { x: 50, width: 410 });
  assert.deepEqual(windowBox(picture, "fp16", 24), { x: 0, width: 320 });
  assert.deepEqual(windowBox(picture, "bf16", 0), { x: 0, width: 510 });
  assert.deepEqual(windowBox(picture, "fp16", 90), { x: 0, width: 0 });
});

test("a share that is not zero never reads as zero", () => {
  assert.equal(shareText(0), "0");
  assert.equal(shareText(1e-9), "< 0.01 %");
  assert.equal(shareText(0.3123), "31.23 %");
});

test("the error of a prediction is told, or that there is nothing to tell it by", () => {
  assert.match(
    errorText({ pairs: 12, mean_error: 0.0213, largest_error: 0.5 }),
    /2\.13 % off on average, 50\.00 % at most \(12 /,
  );
  assert.match(errorText({ pairs: 0, mean_error: 0, largest_error: 0 }), /measured no underflow/);
  assert.match(errorText(null), /measured no underflow/);
});
