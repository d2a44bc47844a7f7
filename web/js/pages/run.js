/** The run page: its charts, events and log, live; zooming in fetches exact points. */

import { ChartView } from "../lib/chart.js";
import { Live, pageData, refreshRegions, throttled } from "../lib/live.js";
import { PointStore } from "../lib/points.js";

const data = pageData();
const store = new PointStore(data.max_points);
const skips = new Map([[data.id, new Set(data.skips)]]);
const names = [...new Set(data.charts.flatMap((chart) => chart.names))];
const log = document.querySelector("[data-log]");

const shared = { data, store, skips, groups: () => data.groups, onZoom };
const charts = data.charts.map((chart) => new ChartView(document.querySelector(`[data-chart="${chart.id}"]`), chart, shared));
const drawNow = () => charts.forEach((chart) => chart.draw());
const redraw = throttled(drawNow, 1000);
const swap = throttled(() => refreshRegions(), 1500);

const seriesUrl = (name, query) => `/api/v1/runs/${data.id}/series/${name.split("/").map(encodeURIComponent).join("/")}?${new URLSearchParams(query)}`;

async function load() {
  await Promise.all(names.map(async (name) => {
    const response = await fetch(seriesUrl(name, { max_points: data.max_points }));
    if (response.ok) store.load(data.id, name, await response.json(), data.attempt);
  }));
  drawNow();
}

/** A zoomed window of a thinned series shows every stored point of the window, as far as it fits. */
async function onZoom(chart, change) {
  const held = store.get(data.id, chart.chart.series);
  if (change["xaxis.autorange"] && chart.overview) {
    store.runs.get(data.id).set(chart.chart.series, chart.overview);
    chart.overview = null;
    return void chart.draw();
  }
  const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
  if (from === undefined || !(held?.kind === "binned" || chart.overview)) return;
  const response = await fetch(seriesUrl(chart.chart.series, { from: Math.max(0, Math.floor(from)), to: Math.ceil(to), max_points: 2 * data.max_points }));
  if (!response.ok) return;
  chart.overview ??= held;
  store.load(data.id, chart.chart.series, await response.json(), data.attempt);
  chart.draw();
}

function showStep(step) {
  const [text, bar] = [document.querySelector("[data-step]"), document.querySelector("[data-step-progress]")];
  if (text) text.textContent = step;
  if (bar) bar.value = step;
}

function addLog(text) {
  const following = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
  log.append(text);
  if (log.textContent.length > 400_000) log.textContent = log.textContent.slice(-200_000);
  if (following) log.scrollTop = log.scrollHeight;
}

const live = new Live(`/api/v1/runs/${data.id}/stream`, {
  segment({ attempt, series }) {
    for (const [name, points] of Object.entries(series)) {
      store.append(data.id, name, points, attempt);
      if (name === "amp/skipped") points.steps.forEach((step, index) => Number(points.values[index]) > 0 && skips.get(data.id).add(step));
    }
    showStep(Math.max(...Object.values(series).map(({ steps }) => steps.at(-1) ?? 0)));
    redraw();
  },
  event: () => swap(),
  log({ text }) {
    addLog(text);
  },
  run: () => swap(),
  end() {
    live.finish();
    refreshRegions();
  },
}, { place: data.place, done: data.done });

log.scrollTop = log.scrollHeight;
document.addEventListener("themechange", drawNow);
load();
