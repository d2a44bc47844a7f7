import assert from "node:assert/strict";
import { test } from "node:test";

import { liveText, marksOf } from "../lib/live.js";

test("the marks of a page's regions are read from its main element", () => {
  assert.deepEqual(
    [...marksOf("facts=0a1b,summary=22")],
    [
      ["facts", "0a1b"],
      ["summary", "22"],
    ],
  );
  assert.deepEqual([...marksOf("")], []);
});

test("the indicator says live, paused, complete or for how long nothing was heard", () => {
  const now = { open: true, done: false, hidden: false, silentFor: 12_400 };
  assert.deepEqual(liveText(now), ["live", "live"]);
  assert.deepEqual(liveText({ ...now, open: false }), ["stale 12 s", "stale"]);
  assert.deepEqual(liveText({ ...now, hidden: true }), ["paused", "paused"]);
  assert.deepEqual(liveText({ ...now, done: true }), ["complete", "done"]);
});
