import assert from "node:assert/strict";
import { test } from "node:test";

import { closeupLoader, limitOf, lookingAt, rangeOf, spliced } from "../lib/zoom.js";

/** @param {number[]} steps */
const points = (steps, kind = "exact") => ({
  steps,
  values: steps.map((step) => -step),
  attempt: 1,
  stored: steps.length,
  kind,
  binWidth: 1,
});

test("a zoom gives a part of the axis, a reset the whole, anything else nothing", () => {
  assert.deepEqual(rangeOf({ "xaxis.range[0]": 10.4, "xaxis.range[1]": 19.2 }), [10.4, 19.2]);
  assert.deepEqual(rangeOf({ "xaxis.range": [19.2, -5] }), [-5, 19.2]);
  assert.equal(rangeOf({ "xaxis.autorange": true }), null);
  assert.equal(rangeOf({ autosize: true }), undefined);
  assert.equal(rangeOf({ "yaxis.range[0]": 1, "yaxis.range[1]": 2 }), undefined);
});

test("places of a date axis are moments in UTC", () => {
  assert.deepEqual(rangeOf({ "xaxis.range[0]": "2026-12-01 09:00:00.1234", "xaxis.range[1]": "2026-12-01 10:00" }), [
    Date.UTC(2026, 11, 1, 9, 0, 0, 123),
    Date.UTC(2026, 11, 1, 10),
  ]);
});

test("a window is drawn with one point before it, one behind it, and what came live within it", () => {
  const overview = points([0, 100, 200, 300, 400, 500], "binned");
  const closer = spliced(overview, points([210, 220, 230]), [205, 240]);
  assert.deepEqual(closer.steps, [200, 210, 220, 230, 300]);
  assert.deepEqual(
    closer.values,
    closer.steps.map((step) => -step),
  );
  assert.equal(closer.kind, "exact");
  assert.deepEqual(
    spliced(overview, points([410, 490]), [405, 900]).steps,
    [400, 410, 490, 500],
    "the newest point came later",
  );
  assert.deepEqual(spliced(overview, points([0, 1]), [0, 50]).steps, [0, 1, 100]);
  assert.deepEqual(spliced(overview, points([]), [210, 290]).steps, [200, 300], "nothing within");
});

test("every stored point of the window is drawn, whatever the overview kept", () => {
  const stored = Array.from({ length: 1000 }, (_, step) => step);
  const overview = points(
    stored.filter((step) => step % 37 === 0),
    "binned",
  );
  for (const [from, to] of [
    [0, 999],
    [1, 36],
    [370, 371],
    [990, 2000],
    [-50, 3],
  ]) {
    const within = stored.filter((step) => step >= from && step <= to);
    const drawn = spliced(overview, points(within), [from, to]).steps;
    assert.deepEqual(
      drawn.filter((step) => step >= from && step <= to),
      within,
      `${from} to ${to}`,
    );
    assert.deepEqual(
      drawn,
      [...new Set(drawn)].sort((a, b) => a - b),
      "in order, none twice",
    );
  }
});

test("only the series of the close-up is replaced, and only runs that it has", () => {
  const store = { get: (/** @type {number} */ run) => (run < 3 ? points([0, 10, 20], "binned") : undefined) };
  const closeup = {
    name: "loss",
    range: /** @type {[number, number]} */ ([5, 15]),
    points: new Map([
      [1, points([5, 6])],
      [9, points([5])],
    ]),
  };
  const source = lookingAt(store, closeup);
  assert.deepEqual(source.get(1, "loss")?.steps, [0, 5, 6, 10, 20]);
  assert.deepEqual(source.get(2, "loss")?.steps, [0, 10, 20]);
  assert.deepEqual(source.get(1, "lr")?.steps, [0, 10, 20]);
  assert.equal(source.get(9, "loss"), undefined);
  assert.equal(lookingAt(store, null), store);
});

test("one request brings the window of every curve; many curves get fewer points each", async () => {
  const asked = [];
  globalThis.fetch = /** @type {any} */ (
    async (/** @type {string} */ url) => {
      asked.push(new URL(url, "http://x"));
      return {
        ok: asked.length < 2,
        status: 503,
        statusText: "Service Unavailable",
        json: async () => ({
          runs: [{ run_id: 4, attempt: 2, series: { "a/b": { kind: "exact", steps: [5], values: ["NaN"] } } }],
        }),
      };
    }
  );
  const load = closeupLoader("/experiments/1/points");
  const { points: found } = await load("a/b", [5, 9], 50);
  assert.deepEqual(Object.fromEntries(asked[0].searchParams), { names: "a/b", from: "5", to: "9", max_points: "400" });
  assert.deepEqual([found.get(4)?.steps, found.get(4)?.values, found.get(4)?.attempt], [[5], [NaN], 2]);
  await assert.rejects(load("a/b", [5, 9], 1), /503/);
  assert.equal(asked[1].searchParams.get("max_points"), "2000");
  assert.deepEqual([1, 15, 30, 50, 10_000].map(limitOf), [2000, 1333, 666, 400, 100]);
});
