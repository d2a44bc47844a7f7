import assert from "node:assert/strict";
import { test } from "node:test";

import { liveText } from "../lib/live.js";
import { PointStore } from "../lib/points.js";
import { faded, tracesOf } from "../lib/traces.js";

const style = {
  slot: "fp32",
  colour: { light: "#112233", dark: "#ddeeff" },
  dash: "solid",
  mean_width: 2,
  seed_width: 1,
  seed_opacity: 0.4,
  band_opacity: 0.2,
};
const group = (name, ids, extra = {}) => ({
  name,
  style,
  emulated: false,
  baseline: false,
  runs: ids.map((id) => ({ id, label: `seed ${id}` })),
  ...extra,
});
const chart = { id: "loss", series: "train/loss", lane: null, log: false, zero: false, speed: false };
const view = { theme: "light", full: false };

function filled(values) {
  const store = new PointStore();
  for (const [run, list] of Object.entries(values))
    store.load(Number(run), "train/loss", { steps: list.map((_, index) => index + 1), values: list }, 1);
  return store;
}

test("seeds are thin lines under their mean, the baseline has a band", () => {
  const { traces } = tracesOf(
    chart,
    [group("32-true", [1, 2], { baseline: true })],
    filled({ 1: [1, 2], 2: [3, 4] }),
    view,
  );
  assert.equal(traces.length, 4);
  assert.equal(traces[1].fill, "tonexty");
  assert.deepEqual(traces[2].y, [1, 2, null, 3, 4, null]);
  assert.deepEqual(traces[3].y, [2, 3]);
});

test("a single run is one full line in its colour and the colour follows the theme", () => {
  const { traces } = tracesOf(chart, [group("32-true", [1])], filled({ 1: [1, 2] }), { ...view, theme: "dark" });
  assert.equal(traces.length, 1);
  assert.equal(traces[0].line.color, "#ddeeff");
});

test("NaN and infinities are marks along the edge and a note, never points", () => {
  const { traces, notes } = tracesOf(
    chart,
    [group("16-mixed", [1])],
    filled({ 1: [1, "NaN", "NaN", "Infinity"] }),
    view,
  );
  assert.deepEqual(traces[0].y, [1, null, null, null, null]);
  const [nan, up] = traces.slice(1);
  assert.deepEqual([nan.marker.symbol, nan.x.slice(0, 2)], ["x", [2, 3]]);
  assert.deepEqual([up.marker.symbol, up.x[0], up.yaxis], ["triangle-up", 4, "y3"]);
  assert.ok(notes.some(({ text, bad }) => bad && text === "16-mixed: NaN, +∞ since step 2"));
});

test("clipped points are marked and told, until the full range is asked for", () => {
  const values = Array.from({ length: 100 }, (_, index) => 1 + (index % 7) / 100);
  values[40] = 500;
  const drawing = tracesOf(chart, [group("32-true", [1])], filled({ 1: values }), view);
  assert.equal(drawing.clips, true);
  assert.equal(drawing.traces[1].x[0], 41);
  assert.ok(drawing.notes.some(({ text }) => text.startsWith("1 point beyond")));
  assert.equal(
    tracesOf(chart, [group("32-true", [1])], filled({ 1: values }), { ...view, full: true }).traces.length,
    1,
  );
});

test("the speed of an emulated run is not drawn, and the chart says why", () => {
  const { traces, notes, empty } = tracesOf(
    { ...chart, speed: true },
    [group("16-mixed", [1], { emulated: true })],
    filled({ 1: [1, 2] }),
    view,
  );
  assert.equal(traces.length, 0);
  assert.equal(empty, true);
  assert.match(notes[0].text, /not measured here/);
});

test("the lane draws every skipped step", () => {
  const store = filled({ 1: [1, 2] });
  store.load(1, "amp/skipped", { steps: [1, 2], values: [1, 0] }, 1);
  const { traces, notes } = tracesOf({ ...chart, lane: "amp/skipped" }, [group("16-mixed", [1])], store, {
    ...view,
    skips: new Map([[1, new Set([1])]]),
  });
  assert.deepEqual(traces.at(-1).x, [1]);
  assert.ok(notes.some(({ text }) => text === "1 skipped step, every one drawn"));
});

test("zeros on a log axis are told, and a series of nothing but zeros is drawn on a linear one", () => {
  const some = tracesOf({ ...chart, log: true }, [group("a", [1])], filled({ 1: [1, 0, 10] }), view);
  assert.ok(some.log && some.notes.some(({ text }) => text === "1 zero below the log scale (○)"));
  const none = tracesOf({ ...chart, log: true }, [group("a", [1])], filled({ 1: [0, 0] }), view);
  assert.equal(none.log, false);
  assert.ok(none.range[0] < 0 && none.range[1] > 0);
});

test("colours fade to rgba", () => assert.equal(faded("#ff8000", 0.5), "rgba(255,128,0,0.5)"));

test("the indicator says live, stale since when, paused, complete", () => {
  const now = { open: true, done: false, hidden: false, silentFor: 0 };
  assert.deepEqual(liveText(now), ["live", "live"]);
  assert.deepEqual(liveText({ ...now, open: false, silentFor: 12_300 }), ["stale 12 s", "stale"]);
  assert.deepEqual(liveText({ ...now, hidden: true }), ["paused", "paused"]);
  assert.deepEqual(liveText({ ...now, done: true }), ["complete", "done"]);
});
