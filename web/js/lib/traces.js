/**
 * From points to Plotly traces, in the styles that Python decided. Pure.
 * @typedef {import("../types").Chart} Chart
 * @typedef {import("../types").Drawing} Drawing
 * @typedef {import("../types").Group} Group
 * @typedef {import("../types").Note} Note
 * @typedef {import("../types").Points} Points
 * @typedef {import("../types").Theme} Theme
 * @typedef {import("../types").Source} Source
 * @typedef {{run: {id: number, label: string}, points: Points}[]} Members
 */

import { across, nonFinite, nonFiniteText, robustRange, stretches } from "./summary.js";

const SYMBOLS = { nan: ["x", "NaN"], up: ["triangle-up", "+∞"], down: ["triangle-down", "−∞"] };
const FEW = 25;

/** `#rrggbb` with an opacity. @param {string} hex @param {number} opacity */
export function faded(hex, opacity) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${opacity})`;
}

/**
 * The traces of one chart.
 * @param {Chart} chart @param {Group[]} groups @param {Source} store
 * @param {{theme: Theme, full: boolean, skips?: Map<number, Set<number>>}} view
 * @returns {Drawing}
 */
export function tracesOf(chart, groups, store, view) {
  const lines = [], marks = [], every = [];
  /** @type {Note[]} */
  const notes = [];
  const shown = groups.filter((group) => !(chart.speed && group.emulated));
  for (const group of groups) if (!shown.includes(group)) notes.push({ text: `${group.name}: emulated, speed and memory are not measured here` });
  for (const group of shown) {
    const members = membersOf(chart.series, group, store);
    if (!members.length) continue;
    lines.push(...groupLines(group, members, view.theme));
    marks.push(...nonFiniteMarks(group, members, view.theme, notes));
    for (const { points } of members) for (const value of points.values) every.push(value);
  }
  const sampled = shown.flatMap((group) => membersOf(chart.series, group, store)).find(({ points }) => points.kind === "binned");
  if (sampled) notes.unshift({ text: `${count(sampled.points.steps.length)} of ${count(sampled.points.stored)} points a run, extremes kept` });
  const drawable = chart.log ? every.filter((value) => value > 0).length : every.length;
  const log = chart.log && drawable > 0;
  const hiddenZeros = log ? every.filter((value) => value <= 0).length : 0;
  if (hiddenZeros) notes.push({ text: `${count(hiddenZeros)} zero${hiddenZeros === 1 ? "" : "s"} below the log scale`, clip: true });
  const scale = robustRange(every, { log, zero: chart.zero });
  if (scale?.clips && !view.full) marks.push(...clippedMarks({ ...chart, log }, shown, store, scale.range, view.theme, notes));
  const lane = chart.lane ? laneTraces(chart.lane, shown, store, view, notes) : [];
  return { traces: [...lines, ...lane, ...marks], range: scale && (view.full ? scale.full : scale.range), clips: Boolean(scale?.clips), log, notes, empty: !lines.length };
}

/** @param {number} number */
const count = (number) => number.toLocaleString("en");

/** @param {string} series @param {Group} group @param {Source} store @returns {Members} */
function membersOf(series, group, store) {
  return group.runs.flatMap((run) => {
    const points = store.get(run.id, series);
    return points?.steps.length ? [{ run, points }] : [];
  });
}

/** @param {Group} group @param {Members} members @param {Theme} theme */
function groupLines(group, members, theme) {
  const { style } = group;
  const colour = style.colour[theme];
  const single = members.length === 1;
  const base = { type: "scatter", mode: members[0].points.steps.length <= FEW ? "lines+markers" : "lines", name: group.name, connectgaps: false };
  const thin = single ? colour : faded(colour, style.seed_opacity);
  const seeds = {
    ...base,
    ...joined(members),
    hovertemplate: "%{text}<br>step %{x}: %{y}<extra>%{fullData.name}</extra>",
    line: { color: thin, width: single ? 2 : style.seed_width, dash: single ? style.dash : "solid" },
    marker: { size: single ? 5 : 4, color: thin },
  };
  if (single) return [seeds];
  const { steps, mean, low, high } = across(members.map(({ points }) => points));
  const line = {
    ...base,
    x: steps,
    y: mean,
    hovertemplate: `mean of ${members.length} seeds<br>step %{x}: %{y}<extra>%{fullData.name}</extra>`,
    line: { color: colour, width: style.mean_width, dash: style.dash },
    marker: { size: 5, color: colour },
  };
  if (!group.baseline) return [seeds, line];
  const edge = { ...base, mode: "lines", line: { width: 0 }, hoverinfo: "skip", x: steps };
  return [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: faded(colour, style.band_opacity) }, seeds, line];
}

/** The runs of a group as one trace, with a gap between them. @param {Members} members */
function joined(members) {
  /** @type {{x: (number | null)[], y: (number | null)[], text: string[]}} */
  const trace = { x: [], y: [], text: [] };
  for (const { run, points } of members) {
    points.steps.forEach((step, index) => add(trace, step, Number.isFinite(points.values[index]) ? points.values[index] : null, run.label));
    add(trace, null, null, "");
  }
  return trace;
}

/** @param {{x: any[], y: any[], text: string[]}} trace @param {number | null} x @param {number | string | null} y @param {string} text */
function add(trace, x, y, text) {
  trace.x.push(x);
  trace.y.push(y);
  trace.text.push(text);
}

/** An empty trace of marks along the edge of the plot (axis y3 runs from 0 to 1). @param {Group} group @param {Theme} theme @param {string} symbol @param {string} label */
function edgeMarks(group, theme, symbol, label) {
  const color = group.style.colour[theme];
  return {
    type: "scatter", mode: "lines+markers", yaxis: "y3", cliponaxis: false, connectgaps: false, name: group.name,
    x: /** @type {any[]} */ ([]), y: /** @type {any[]} */ ([]), text: /** @type {string[]} */ ([]),
    hovertemplate: `${label} %{text}<br>step %{x}<extra>%{fullData.name}</extra>`,
    line: { width: 1.5, color }, marker: { symbol, size: 8, color, line: { color, width: 1.5 } },
  };
}

/** @param {Group} group @param {Members} members @param {Theme} theme @param {Note[]} notes */
function nonFiniteMarks(group, members, theme, notes) {
  const traces = Object.fromEntries(Object.entries(SYMBOLS).map(([kind, [symbol, label]]) => [kind, edgeMarks(group, theme, symbol, label)]));
  const found = members.map(({ points }) => nonFinite(points)).filter(({ first }) => first !== null);
  for (const { run, points } of members) {
    for (const [kind, from, to] of stretches(points)) {
      for (const step of from === to ? [from] : [from, to]) add(traces[kind], step, kind === "up" ? 0.98 : 0.02, run.label);
      add(traces[kind], null, null, "");
    }
  }
  const earliest = found.sort((a, b) => Number(a.first) - Number(b.first))[0];
  if (earliest) notes.push({ text: `${group.name}: ${nonFiniteText(earliest)}`, bad: true });
  return Object.values(traces).filter(({ x }) => x.length);
}

/** @param {Chart} chart @param {Group[]} groups @param {Source} store @param {[number, number]} range @param {Theme} theme @param {Note[]} notes */
function clippedMarks(chart, groups, store, [low, high], theme, notes) {
  let number = 0;
  const marks = groups.flatMap((group) => {
    const above = edgeMarks(group, theme, "triangle-up-open", "beyond the scale:"), below = edgeMarks(group, theme, "triangle-down-open", "beyond the scale:");
    for (const { points } of membersOf(chart.series, group, store)) {
      points.values.forEach((value, index) => {
        const at = chart.log ? Math.log10(value) : value;
        if (!Number.isFinite(at) || (at >= low && at <= high)) return;
        add(at > high ? above : below, points.steps[index], at > high ? 0.985 : 0.015, value.toPrecision(4));
        number += 1;
      });
    }
    return [above, below].filter(({ x }) => x.length).map((trace) => ({ ...trace, mode: "markers" }));
  });
  notes.push({ text: `${number} point${number === 1 ? "" : "s"} beyond the scale (△ ▽)`, clip: true });
  return marks;
}

/** @param {string} series @param {Group[]} groups @param {Source} store @param {{theme: Theme, skips?: Map<number, Set<number>>}} view @param {Note[]} notes */
function laneTraces(series, groups, store, view, notes) {
  let total = 0;
  const scaled = groups.filter((group) => membersOf(series, group, store).length);
  const traces = scaled.map((group) => {
    const color = group.style.colour[view.theme];
    const trace = {
      type: "scatter", mode: "markers", yaxis: "y2", name: group.name,
      x: /** @type {any[]} */ ([]), y: /** @type {any[]} */ ([]), text: /** @type {string[]} */ ([]),
      hovertemplate: "skipped step %{x}<br>%{text}<extra>%{fullData.name}</extra>",
      marker: { symbol: "line-ns-open", size: 11, color, line: { width: 2, color } },
    };
    for (const run of group.runs) for (const step of view.skips?.get(run.id) ?? []) add(trace, step, group.name, run.label);
    total += trace.x.length;
    if (!trace.x.length) add(trace, null, group.name, "");
    return trace;
  });
  if (scaled.length) notes.push({ text: total ? `${count(total)} skipped step${total === 1 ? "" : "s"}, every one drawn` : "no step was skipped" });
  return traces;
}
