/** From points to Plotly traces, in the styles that Python decided. Pure. */

import { across, nonFinite, nonFiniteText, robustRange, stretches } from "./summary.js";

const SYMBOL = { nan: "x", up: "triangle-up", down: "triangle-down" };
const FEW = 25;

/** `#rrggbb` with an opacity. */
export function faded(hex, opacity) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${opacity})`;
}

/**
 * The traces of one chart.
 * @param {object} chart as `server.pages.figures.describe` gives it
 * @param {{name: string, style: object, emulated: boolean, baseline: boolean, runs: {id: number, label: string}[]}[]} groups
 * @param {import("./points.js").PointStore} store
 * @param {{theme: string, full: boolean, skips?: Map<number, Set<number>>}} view
 */
export function tracesOf(chart, groups, store, view) {
  const lines = [], marks = [], every = [], notes = [];
  for (const group of groups) {
    if (chart.speed && group.emulated) {
      notes.push({ text: `${group.name}: emulated, speed and memory are not measured here` });
      continue;
    }
    const members = group.runs.map((run) => ({ run, points: store.get(run.id, chart.series) })).filter(({ points }) => points?.steps.length);
    if (!members.length) continue;
    lines.push(...groupLines(group, members, view.theme));
    marks.push(...nonFiniteMarks(group, members, view.theme, notes));
    for (const { points } of members) for (const value of points.values) every.push(value);
    const thinned = members.find(({ points }) => points.kind === "binned");
    if (thinned && !notes.sampled) notes.sampled = `${thinned.points.steps.length.toLocaleString("en")} of ${thinned.points.stored.toLocaleString("en")} points a run, extremes kept`;
  }
  const scale = robustRange(every, chart);
  if (scale?.clips && !view.full) marks.push(...clippedMarks(chart, groups, store, scale.range, view.theme, notes));
  const lane = chart.lane ? laneTraces(chart, groups, store, view, notes) : [];
  return { traces: [...lines, ...lane, ...marks], range: scale && (view.full ? scale.full : scale.range), clips: Boolean(scale?.clips), notes, empty: !lines.length };
}

function groupLines(group, members, theme) {
  const { style } = group;
  const colour = style.colour[theme];
  const mode = members[0].points.steps.length <= FEW ? "lines+markers" : "lines";
  const base = { type: "scatter", connectgaps: false, hoverlabel: { namelength: 40 } };
  const single = members.length === 1;
  const seeds = { ...base, name: group.name, mode, x: [], y: [], text: [], hovertemplate: "%{text}<br>step %{x}: %{y}<extra>%{fullData.name}</extra>",
    line: { color: single ? colour : faded(colour, style.seed_opacity), width: single ? 2 : style.seed_width, dash: single ? style.dash : "solid" },
    marker: { size: single ? 5 : 4, color: single ? colour : faded(colour, style.seed_opacity) } };
  for (const { run, points } of members) {
    points.steps.forEach((step, index) => {
      seeds.x.push(step);
      seeds.y.push(Number.isFinite(points.values[index]) ? points.values[index] : null);
      seeds.text.push(run.label);
    });
    seeds.x.push(null), seeds.y.push(null), seeds.text.push("");
  }
  if (single) return [seeds];
  const { steps, mean, low, high } = across(members.map(({ points }) => points));
  const line = { ...base, name: group.name, mode, x: steps, y: mean, line: { color: colour, width: style.mean_width, dash: style.dash }, marker: { size: 5, color: colour },
    hovertemplate: `mean of ${members.length} seeds<br>step %{x}: %{y}<extra>%{fullData.name}</extra>` };
  if (!group.baseline) return [seeds, line];
  const edge = { ...base, mode: "lines", line: { width: 0 }, hoverinfo: "skip", x: steps, name: `${group.name}, min–max` };
  return [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: faded(colour, style.band_opacity) }, seeds, line];
}

function marker(group, theme, symbol, label) {
  const colour = group.style.colour[theme];
  return { type: "scatter", mode: "lines+markers", line: { width: 1.5, color: colour }, connectgaps: false, yaxis: "y3", cliponaxis: false, x: [], y: [], text: [], name: group.name, hovertemplate: `${label} %{text}<br>step %{x}<extra>%{fullData.name}</extra>`,
    marker: { symbol, size: 8, color: colour, line: { color: colour, width: 1.5 } } };
}

function nonFiniteMarks(group, members, theme, notes) {
  const traces = { nan: marker(group, theme, SYMBOL.nan, "NaN"), up: marker(group, theme, SYMBOL.up, "+∞"), down: marker(group, theme, SYMBOL.down, "−∞") };
  let first = null;
  for (const { run, points } of members) {
    const found = nonFinite(points);
    if (found.first === null) continue;
    if (first === null || found.first < first.first) first = found;
    for (const [kind, from, to] of stretches(points)) {
      const trace = traces[kind];
      for (const step of from === to ? [from] : [from, to]) trace.x.push(step), trace.y.push(kind === "up" ? 0.98 : 0.02), trace.text.push(run.label);
      trace.x.push(null), trace.y.push(null), trace.text.push("");
    }
  }
  if (first) notes.push({ text: `${group.name}: ${nonFiniteText(first)}`, bad: true });
  return Object.values(traces).filter(({ x }) => x.length);
}

function clippedMarks(chart, groups, store, [low, high], theme, notes) {
  let count = 0;
  const marks = groups.filter((group) => !(chart.speed && group.emulated)).flatMap((group) => {
    const above = marker(group, theme, "triangle-up-open", "beyond the scale:"), below = marker(group, theme, "triangle-down-open", "beyond the scale:");
    for (const run of group.runs) {
      const points = store.get(run.id, chart.series);
      points?.values.forEach((value, index) => {
        const at = chart.log ? Math.log10(value) : value;
        if (!Number.isFinite(at) || (at >= low && at <= high)) return;
        const trace = at > high ? above : below;
        trace.x.push(points.steps[index]), trace.y.push(at > high ? 0.985 : 0.015), trace.text.push(value.toPrecision(4));
        trace.x.push(null), trace.y.push(null), trace.text.push("");
        count += 1;
      });
    }
    return [above, below].filter(({ x }) => x.length);
  });
  notes.push({ text: `${count} point${count === 1 ? "" : "s"} beyond the scale (△ ▽)`, clip: true });
  return marks;
}

function laneTraces(chart, groups, store, view, notes) {
  let total = 0;
  const scaled = groups.filter((group) => group.runs.some((run) => store.get(run.id, chart.lane)?.steps.length));
  const traces = scaled.map((group) => {
    const trace = { type: "scatter", mode: "markers", yaxis: "y2", x: [], y: [], text: [], name: group.name, hovertemplate: "skipped step %{x}<br>%{text}<extra>%{fullData.name}</extra>",
      marker: { symbol: "line-ns-open", size: 11, line: { width: 2, color: group.style.colour[view.theme] }, color: group.style.colour[view.theme] } };
    for (const run of group.runs) for (const step of view.skips?.get(run.id) ?? []) trace.x.push(step), trace.y.push(group.name), trace.text.push(run.label);
    total += trace.x.length;
    if (!trace.x.length) trace.x.push(null), trace.y.push(group.name), trace.text.push("");
    return trace;
  });
  if (scaled.length) notes.push({ text: total ? `${total} skipped step${total === 1 ? "" : "s"}, every one drawn` : "no step was skipped" });
  return traces;
}
