import assert from "node:assert/strict";
import { test } from "node:test";

import { abscissae, placeOf, stepsWithin, timeUnit, lastPlace } from "../lib/axes.js";
import { csvOf, field, fileName, minusWords } from "../lib/export.js";
import { PointStore } from "../lib/points.js";
import { settingsOf, spelledSettings } from "../lib/settings.js";
import { smoothed } from "../lib/smoothing.js";
import { across, nonPositive } from "../lib/summary.js";
import { tracesOf } from "../lib/traces.js";

const style = {
  slot: "fp32",
  colour: { light: "#112233", dark: "#ddeeff" },
  dash: "solid",
  mean_width: 2,
  seed_width: 1,
  seed_opacity: 0.4,
  band_opacity: 0.2,
};
const points = {
  steps: [1, 2, 4],
  values: [3, 2, 1],
  times: [100, 110, 130],
  attempt: 1,
  stored: 3,
  kind: "exact",
  binWidth: 1,
};

test("settings are the same after a way through the address", () => {
  const given = {
    axis: "time",
    smooth: 0.6,
    range: [10.5, 99],
    log: new Set(["loss"]),
    full: new Set(["a", "b"]),
    pinned: "bf16-mixed, wide",
    minus: "3,14",
  };
  const query = new URLSearchParams(
    Object.entries(spelledSettings(given)).flatMap(([name, values]) => values.map((value) => [name, value])),
  );
  assert.deepEqual(settingsOf(`?${query}`), given);
});

test("defaults are not spelled, and what an address says wrong is left out", () => {
  assert.deepEqual(Object.values(spelledSettings(settingsOf(""))).flat(), []);
  const odd = settingsOf("?x=constructor&smooth=7&window=9..3");
  assert.deepEqual([odd.axis, odd.smooth, odd.range], ["step", 0.99, null]);
  assert.deepEqual(
    ["1;drop", "1,,2", "a"].map((minus) => settingsOf(`?${new URLSearchParams({ minus })}`).minus),
    ["", "", ""],
  );
  assert.deepEqual([settingsOf("?smooth=abc").smooth, settingsOf("?window=a..b").range], [0, null]);
});

test("a point lies at its step, its time, or the samples seen by then", () => {
  const run = { id: 1, label: "seed 0", samples_per_step: 32, started_at: 90 };
  assert.deepEqual(abscissae("step", points, run), [1, 2, 4]);
  assert.deepEqual(abscissae("time", points, run), [10, 20, 40]);
  assert.deepEqual(abscissae("wall", points, run), [100_000, 110_000, 130_000]);
  assert.deepEqual(abscissae("samples", points, run), [32, 64, 128]);
  assert.deepEqual(abscissae("tokens", points, run), [NaN, NaN, NaN]);
  assert.deepEqual(abscissae("time", { ...points, times: [] }, run), [NaN, NaN, NaN]);
});

test("a step between points lies between them", () => {
  assert.equal(placeOf(3, points.steps, [10, 20, 40]), 30);
  assert.equal(placeOf(5, points.steps, [10, 20, 40]), 50);
  assert.ok(Number.isNaN(placeOf(1, [], [])));
});

test("a window of time is one of steps, one point wider", () => {
  assert.deepEqual(stepsWithin([{ points, x: [10, 20, 40] }], [15, 25]), [1, 4]);
  assert.equal(stepsWithin([{ points, x: [10, 20, 40] }], [50, 60]), null);
});

test("time is told in the unit that people use", () =>
  assert.deepEqual(
    [20, 2000, 20_000].map((span) => timeUnit(span).name),
    ["s", "min", "h"],
  ));

test("smoothing keeps a constant, moves nothing where it is off, and leaves what is not finite in its place", () => {
  assert.deepEqual(
    smoothed([1, 2, 3, 4], [5, 5, 5, 5], 0.9).map((value) => Math.round(value * 1e9) / 1e9),
    [5, 5, 5, 5],
  );
  const raw = [1, 2, 3];
  assert.equal(smoothed([1, 2, 3], raw, 0), raw);
  const eased = smoothed([1, 2, 3, 4], [0, NaN, Infinity, 1], 0.5);
  assert.ok(Number.isNaN(eased[1]) && eased[2] === Infinity && eased[3] > 0 && eased[3] < 1);
});

test("smoothing is the weighted mean of all values before, by their distance", () => {
  const weight = 0.8,
    values = [1, 4, 2],
    [, , last] = smoothed([1, 2, 3], values, weight);
  const shares = values.map((_, index) => weight ** (values.length - 1 - index)),
    total = shares.reduce((a, b) => a + b);
  assert.ok(Math.abs(last - values.reduce((sum, value, index) => sum + value * shares[index], 0) / total) < 1e-12);
});

test("the raw line stays, faint, under the smoothed one", () => {
  const store = new PointStore();
  store.load(1, "train/loss", { steps: [1, 2, 3], values: [1, 9, 1] }, 1);
  const group = { name: "32-true", style, emulated: false, baseline: false, runs: [{ id: 1, label: "seed 0" }] };
  const chart = { id: "loss", series: "train/loss", lane: null, log: false, zero: false, speed: false };
  const { traces, notes } = tracesOf(chart, [group], store, { theme: "light", full: false, smooth: 0.5 });
  assert.equal(traces.length, 2);
  assert.deepEqual(traces[0].y, [1, 9, 1, null]);
  assert.match(traces[0].line.color, /0\.3\)$/);
  assert.ok(traces[1].y[1] < 9);
  assert.ok(notes.some(({ text }) => text === "smoothed 0.5, raw lines kept faint"));
});

test("means lie at the mean time of their runs", () => {
  const { x } = across(
    [points, points],
    [
      [10, 20, 40],
      [20, 30, 60],
    ],
  );
  assert.deepEqual(x, [15, 25, 50]);
});

test("stretches at or below zero are found", () =>
  assert.deepEqual(nonPositive([1, 2, 3, 4, 5], [1, 0, -1, 2, 0]), [
    [2, 3],
    [5, 5],
  ]));

test("an axis of steps is as long as the longest run, one of differences as what is drawn", () => {
  const curves = [{ x: [1, 120] }, { x: [1, 60] }];
  assert.equal(lastPlace(curves, { axis: "step", minus: "" }, 4000), 4000);
  assert.equal(lastPlace(curves, { axis: "step", minus: "3" }, 4000), 120);
  assert.equal(lastPlace(curves, { axis: "samples", minus: "" }, 4000), 120);
  assert.equal(lastPlace([{ x: [1, 5000] }], { axis: "step", minus: "" }, 4000), 5000);
  assert.equal(lastPlace([{ x: [] }], { axis: "step", minus: "3" }, 4000), 0);
});

test("a CSV of differences says what was taken from its values", () => {
  const store = new PointStore();
  store.load(7, "train/loss", { steps: [1], values: [0.5] }, 1);
  const groups = [{ name: "bf16", runs: [{ id: 7, label: "seed 0" }] }];
  const head = (minus) => csvOf(["train/loss"], groups, store, minus).split("\r\n")[0];
  assert.equal(head(""), "series,recipe,run,label,step,value,unix_time");
  assert.equal(head("3"), "series,recipe,run,label,step,value minus run 3,unix_time");
  assert.equal(head("3,4"), "series,recipe,run,label,step,value minus mean of runs 3 4,unix_time");
  assert.equal(fileName(`Training loss ${minusWords("3,4")}`), "training-loss-minus-mean-of-runs-3-4");
});

test("a CSV has the raw points, and no field that a program would run", () => {
  const store = new PointStore();
  store.load(7, "train/loss", { steps: [1, 2], values: [0.5, "NaN"] }, 1);
  const text = csvOf(["train/loss"], [{ name: '=HYPERLINK("x")', runs: [{ id: 7, label: "seed 0" }] }], store);
  assert.deepEqual(text.split("\r\n").slice(1, 3), [
    `train/loss,"'=HYPERLINK(""x"")",7,seed 0,1,0.5,`,
    `train/loss,"'=HYPERLINK(""x"")",7,seed 0,2,NaN,`,
  ]);
  assert.deepEqual([field(-3), field("-3"), fileName("Training loss / 2")], ["-3", "'-3", "training-loss-2"]);
});
