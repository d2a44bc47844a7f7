/**
 * From points to Plotly traces, in the styles that Python decided. Pure.
 * @typedef {import("../types").Chart} Chart
 * @typedef {import("../types").Drawing} Drawing
 * @typedef {import("../types").Group} Group
 * @typedef {import("../types").Note} Note
 * @typedef {import("../types").Points} Points
 * @typedef {import("../types").Theme} Theme
 * @typedef {import("../types").Source} Source
 * @typedef {import("../types").View} View
 * @typedef {{run: import("../types").RunOfGroup, points: Points, x: number[]}[]} Members
 */

import { abscissae, placeOf } from "./axes.js";
import { smoothed } from "./smoothing.js";
import { across, nonFinite, nonPositive, nonFiniteText, robustRange, stretches } from "./summary.js";

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
 * @param {View} view
 * @returns {Drawing}
 */
export function tracesOf(chart, groups, store, view) {
  const lines = [],
    marks = [],
    every = [];
  /** @type {Note[]} */
  const notes = [];
  const shown = groups.filter((group) => !(chart.speed && group.emulated));
  const unmeasured = groups.filter((group) => !shown.includes(group)).map(({ name }) => name);
  if (unmeasured.length)
    notes.push({ text: `${unmeasured.join("; ")}: emulated, speed and memory are not measured here` });
  for (const group of shown) {
    const members = membersOf(chart.series, group, store, view);
    if (!members.length) continue;
    lines.push(...groupLines(group, members, view));
    for (const [index, name] of (chart.also ?? []).entries())
      lines.push(...furtherLine(name, index, group, membersOf(name, group, store, view), view));
    marks.push(...nonFiniteMarks(group, members, view.theme, notes));
    for (const { points } of members) for (const value of points.values) every.push(value);
  }
  if (view.smooth) notes.push({ text: `smoothed ${view.smooth}, raw lines kept faint` });
  const unplaced = shown.filter(
    (group) =>
      group.runs.some((run) => store.get(run.id, chart.series)?.steps.length) &&
      !membersOf(chart.series, group, store, view).length,
  );
  if (unplaced.length)
    notes.push({ text: `not recorded for this axis: ${unplaced.map(({ name }) => name).join(", ")}`, clip: true });
  const sampled = shown
    .flatMap((group) => membersOf(chart.series, group, store, view))
    .find(({ points }) => points.kind === "binned");
  if (sampled)
    notes.unshift({
      text: `${count(sampled.points.steps.length)} of ${count(sampled.points.stored)} points a run, extremes kept`,
    });
  const drawable = chart.log ? every.filter((value) => value > 0).length : every.length;
  const log = chart.log && drawable > 0;
  const hiddenZeros = log ? every.filter((value) => value <= 0).length : 0;
  if (hiddenZeros) {
    const negative = every.some((value) => value < 0);
    notes.push({
      text: `${count(hiddenZeros)} ${negative ? "value" : "zero"}${hiddenZeros === 1 ? "" : "s"}${negative ? " at or below zero," : ""} below the log scale (○)`,
      clip: true,
    });
    for (const group of shown)
      marks.push(...belowMarks(group, membersOf(chart.series, group, store, view), view.theme));
  }
  const scale = robustRange(every, { log, zero: chart.zero });
  if (scale?.clips && !view.full)
    marks.push(...clippedMarks({ ...chart, log }, shown, store, scale.range, view, notes));
  const lane = chart.lane ? laneTraces(chart.lane, shown, store, view, notes) : [];
  return {
    traces: [...lines, ...lane, ...marks],
    range: scale && (view.full ? scale.full : scale.range),
    clips: Boolean(scale?.clips),
    log,
    notes,
    empty: !lines.length,
  };
}

/** @param {number} number */
const count = (number) => number.toLocaleString("en");

/** The runs of a group that have the series and a place for it on the axis. @param {string} series @param {Group} group @param {Source} store @param {View} view @returns {Members} */
function membersOf(series, group, store, { axis = "step" }) {
  return group.runs.flatMap((run) => {
    const points = store.get(run.id, series);
    if (!points?.steps.length) return [];
    const x = abscissae(axis, points, run);
    return Number.isNaN(x[0]) ? [] : [{ run, points, x }];
  });
}

/** What the eye follows: the curves as smooth as asked for. @param {Members} members @param {View} view @returns {Members} */
function eased(members, { smooth = 0 }) {
  return smooth
    ? members.map(({ run, points, x }) => ({
        run,
        x,
        points: { ...points, values: smoothed(points.steps, points.values, smooth) },
      }))
    : members;
}

/** A further series in the same chart: its mean, or the only run, in another dash. @param {string} name @param {number} index @param {Group} group @param {Members} members @param {View} view */
function furtherLine(name, index, group, members, view) {
  if (!members.length) return [];
  const even = eased(members, view);
  const { steps, x, mean } = across(
    even.map(({ points }) => points),
    even.map((member) => member.x),
  );
  const line = { color: group.style.colour[view.theme], width: 1.6, dash: ["dot", "dashdot", "dash"][index % 3] };
  return [
    {
      type: "scatter",
      mode: "lines",
      yaxis: "y4",
      name: `${group.name}, ${name}`,
      connectgaps: false,
      x,
      y: mean,
      customdata: steps,
      hovertemplate: "step %{customdata}: %{y}<extra>%{fullData.name}</extra>",
      line,
    },
  ];
}

/** Values that a log axis has no place for, along its lower edge. @param {Group} group @param {Members} members @param {Theme} theme */
function belowMarks(group, members, theme) {
  const trace = edgeMarks(group, theme, "circle-open", "at or below zero");
  for (const { run, points, x } of members) {
    for (const [from, to] of nonPositive(x, points.values)) {
      for (const at of from === to ? [from] : [from, to]) add(trace, at, 0.015, run.label, null);
      add(trace, null, null, "", null);
    }
  }
  return trace.x.length ? [trace] : [];
}

/** @param {Group} group @param {Members} members @param {View} view */
function groupLines(group, members, view) {
  const { theme, smooth = 0 } = view;
  const { style } = group;
  const colour = style.colour[theme];
  const single = members.length === 1;
  const base = {
    type: "scatter",
    mode: members[0].points.steps.length <= FEW ? "lines+markers" : "lines",
    name: group.name,
    connectgaps: false,
  };
  const thin = smooth
    ? faded(colour, single ? 0.3 : style.seed_opacity / 2)
    : single
      ? colour
      : faded(colour, style.seed_opacity);
  const seeds = {
    ...base,
    ...joined(members),
    hovertemplate: "%{text}<br>step %{customdata}: %{y}<extra>%{fullData.name}</extra>",
    line: { color: thin, width: single ? 2 : style.seed_width, dash: single ? style.dash : "solid" },
    marker: { size: single ? 5 : 4, color: thin },
  };
  const even = eased(members, view);
  if (single)
    return smooth
      ? [
          seeds,
          {
            ...base,
            ...joined(even),
            hovertemplate: "%{text}, smoothed<br>step %{customdata}: %{y}<extra>%{fullData.name}</extra>",
            mode: "lines",
            line: { color: colour, width: 2, dash: style.dash },
          },
        ]
      : [seeds];
  const { steps, x, mean, low, high } = across(
    even.map(({ points }) => points),
    even.map((member) => member.x),
  );
  const line = {
    ...base,
    x,
    y: mean,
    customdata: steps,
    hovertemplate: `mean of ${members.length} seeds${smooth ? ", smoothed" : ""}<br>step %{customdata}: %{y}<extra>%{fullData.name}</extra>`,
    line: { color: colour, width: style.mean_width, dash: style.dash },
    marker: { size: 5, color: colour },
  };
  if (!group.baseline) return [seeds, line];
  const edge = { ...base, mode: "lines", line: { width: 0 }, hoverinfo: "skip", x };
  return [
    { ...edge, y: low },
    { ...edge, y: high, fill: "tonexty", fillcolor: faded(colour, style.band_opacity) },
    seeds,
    line,
  ];
}

/** The runs of a group as one trace, with a gap between them. @param {Members} members */
function joined(members) {
  /** @type {{x: (number | null)[], y: (number | null)[], text: string[], customdata: (number | null)[]}} */
  const trace = { x: [], y: [], text: [], customdata: [] };
  for (const { run, points, x } of members) {
    points.steps.forEach((step, index) =>
      add(trace, x[index], Number.isFinite(points.values[index]) ? points.values[index] : null, run.label, step),
    );
    add(trace, null, null, "", null);
  }
  return trace;
}

/** @param {{x: any[], y: any[], text: string[], customdata: any[]}} trace @param {number | null} x @param {number | string | null} y @param {string} text @param {number | null} step */
function add(trace, x, y, text, step) {
  trace.x.push(x);
  trace.y.push(y);
  trace.text.push(text);
  trace.customdata.push(step);
}

/** An empty trace of marks along the edge of the plot (axis y3 runs from 0 to 1). @param {Group} group @param {Theme} theme @param {string} symbol @param {string} label */
function edgeMarks(group, theme, symbol, label) {
  const color = group.style.colour[theme];
  return {
    type: "scatter",
    mode: "lines+markers",
    yaxis: "y3",
    cliponaxis: false,
    connectgaps: false,
    name: group.name,
    x: /** @type {any[]} */ ([]),
    y: /** @type {any[]} */ ([]),
    text: /** @type {string[]} */ ([]),
    customdata: /** @type {any[]} */ ([]),
    hovertemplate: `${label} %{text}<extra>%{fullData.name}</extra>`,
    line: { width: 1.5, color },
    marker: { symbol, size: 8, color, line: { color, width: 1.5 } },
  };
}

/** @param {Group} group @param {Members} members @param {Theme} theme @param {Note[]} notes */
function nonFiniteMarks(group, members, theme, notes) {
  const traces = Object.fromEntries(
    Object.entries(SYMBOLS).map(([kind, [symbol, label]]) => [kind, edgeMarks(group, theme, symbol, label)]),
  );
  const found = members.map(({ points }) => nonFinite(points)).filter(({ first }) => first !== null);
  for (const { run, points, x } of members) {
    for (const [kind, from, to] of stretches({ ...points, steps: x })) {
      for (const at of from === to ? [from] : [from, to])
        add(traces[kind], at, kind === "up" ? 0.98 : 0.02, run.label, null);
      add(traces[kind], null, null, "", null);
    }
  }
  const earliest = found.sort((a, b) => Number(a.first) - Number(b.first))[0];
  if (earliest) notes.push({ text: `${group.name}: ${nonFiniteText(earliest)}`, bad: true });
  return Object.values(traces).filter(({ x }) => x.length);
}

/** @param {Chart} chart @param {Group[]} groups @param {Source} store @param {[number, number]} range @param {View} view @param {Note[]} notes */
function clippedMarks(chart, groups, store, [low, high], view, notes) {
  let number = 0;
  const marks = groups.flatMap((group) => {
    const above = edgeMarks(group, view.theme, "triangle-up-open", "beyond the scale:"),
      below = edgeMarks(group, view.theme, "triangle-down-open", "beyond the scale:");
    for (const { points, x } of membersOf(chart.series, group, store, view)) {
      points.values.forEach((value, index) => {
        const at = chart.log ? Math.log10(value) : value;
        if (!Number.isFinite(at) || (at >= low && at <= high)) return;
        add(at > high ? above : below, x[index], at > high ? 0.985 : 0.015, value.toPrecision(4), points.steps[index]);
        number += 1;
      });
    }
    return [above, below].filter(({ x }) => x.length).map((trace) => ({ ...trace, mode: "markers" }));
  });
  notes.push({ text: `${number} point${number === 1 ? "" : "s"} beyond the scale (△ ▽)`, clip: true });
  return marks;
}

/** @param {string} series @param {Group[]} groups @param {Source} store @param {View} view @param {Note[]} notes */
function laneTraces(series, groups, store, view, notes) {
  let total = 0;
  const scaled = groups
    .map((group) => ({ group, members: membersOf(series, group, store, view) }))
    .filter(({ members }) => members.length);
  const traces = scaled.map(({ group, members }) => {
    const color = group.style.colour[view.theme];
    const trace = {
      type: "scatter",
      mode: "markers",
      yaxis: "y2",
      name: group.name,
      x: /** @type {any[]} */ ([]),
      y: /** @type {any[]} */ ([]),
      text: /** @type {string[]} */ ([]),
      customdata: /** @type {any[]} */ ([]),
      hovertemplate: "skipped step %{customdata}<br>%{text}<extra>%{fullData.name}</extra>",
      marker: { symbol: "line-ns-open", size: 11, color, line: { width: 2, color } },
    };
    for (const { run, points, x } of members)
      for (const step of view.skips?.get(run.id) ?? [])
        add(
          trace,
          view.axis === "step" || !view.axis ? step : placeOf(step, points.steps, x),
          group.name,
          run.label,
          step,
        );
    total += trace.x.length;
    if (!trace.x.length) add(trace, null, group.name, "", null);
    return trace;
  });
  if (scaled.length)
    notes.push({
      text: total ? `${count(total)} skipped step${total === 1 ? "" : "s"}, every one drawn` : "no step was skipped",
    });
  return traces;
}
