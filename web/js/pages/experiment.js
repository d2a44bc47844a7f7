/** The experiment page: charts over all runs, one legend, live points, findings swapped in as they come. */

import { remember } from "../lib/address.js";
import { ChartView } from "../lib/chart.js";
import { wireHeatChoice } from "../lib/heat.js";
import { Live, pageData, refreshRegions, throttled } from "../lib/live.js";
import { liveDrawing, pointLoader } from "../lib/loading.js";
import { PointStore } from "../lib/points.js";
import { closeupLoader, limitOf } from "../lib/zoom.js";

const data = pageData();
const points = `/experiments/${data.id}/points`;
const numRuns = data.groups.reduce((sum, { runs }) => sum + runs.length, 0);
const store = new PointStore(Math.min(data.max_points, limitOf(numRuns)));
/** @type {Map<number, Set<number>>} */
const skips = new Map(Object.entries(data.skips).map(([run, steps]) => [Number(run), new Set(steps)]));
const names = [...new Set(data.charts.flatMap((chart) => chart.names))];
const view = new URLSearchParams(location.search);
const hidden = new Set(view.getAll("hide"));

const shared = { data, store, skips, load: pointLoader(points, store), lookAt: closeupLoader(points), groups: () => data.groups.filter((group) => !hidden.has(group.name)), onView: rememberView };
const charts = data.charts.map((chart) => new ChartView(/** @type {HTMLElement} */ (document.querySelector(`[data-chart="${chart.id}"]`)), chart, shared));
for (const chart of charts) chart.full = view.getAll("full").includes(chart.chart.id);
const redraw = liveDrawing(charts);
const drawNow = () => charts.forEach((chart) => chart.draw());

/** The address always shows the same view after a reload, and to whoever gets the link. */
function rememberView() {
  remember("hide", [...hidden]);
  remember("full", charts.filter((chart) => chart.full).map((chart) => chart.chart.id));
}

function wireLegend() {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-legend] [data-recipe]"))) {
    const name = button.dataset.recipe ?? "";
    const show = () => button.setAttribute("aria-pressed", String(!hidden.has(name)));
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      show();
      rememberView();
      drawNow();
    });
    show();
  }
}

function wireFolds() {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-fold]"))) {
    button.hidden = false;
    button.onclick = () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      for (const row of /** @type {NodeListOf<HTMLElement>} */ (button.closest("tbody")?.querySelectorAll(".member"))) row.hidden = !open;
    };
  }
}

/** @param {number} run @param {import("../types").Window} window */
function noteSkips(run, { steps, values }) {
  const known = skips.get(run) ?? new Set();
  skips.set(run, known);
  steps.forEach((step, index) => Number(values[index]) > 0 && known.add(step));
}

const swap = throttled(() => refreshRegions(wireFolds), 1500);

const live = new Live(`/api/v1/experiments/${data.id}/stream?${new URLSearchParams({ series: names.join(",") })}`, {
  points({ run_id: run, attempt, series }) {
    for (const [name, points] of /** @type {[string, import("../types").Window][]} */ (Object.entries(series))) {
      store.append(run, name, points, attempt);
      if (name === "amp/skipped") noteSkips(run, points);
    }
    redraw(Object.keys(series));
  },
  experiment: () => swap(),
  end() {
    live.finish();
    swap();
  },
}, { place: data.place, done: data.done });

wireLegend();
wireFolds();
const heats = /** @type {HTMLElement | null} */ (document.querySelector("[data-heat-choice]"));
if (heats) wireHeatChoice(heats);
document.addEventListener("themechange", drawNow);
drawNow();
