/** A report: each of its chart blocks as a chart of its own. */

import { ChartView } from "../lib/chart.js";
import { pageData } from "../lib/live.js";
import { pointLoader } from "../lib/loading.js";
import { PointStore } from "../lib/points.js";
import { closeupLoader, limitOf } from "../lib/zoom.js";

const data = /** @type {any} */ (pageData());

const charts = data.blocks.map((/** @type {any} */ block) => {
  const points = `/compare/${block.ids.join(",")}/points`;
  const store = new PointStore(Math.min(block.max_points, limitOf(block.ids.length)));
  const page = { ...data, id: 0, done: true, waiting: false, steps: block.steps, charts: [block.chart], groups: block.groups, skips: {} };
  const shared = { data: page, store, skips: new Map(), load: pointLoader(points, store), lookAt: closeupLoader(points), groups: () => block.groups };
  return new ChartView(/** @type {HTMLElement} */ (document.querySelector(`[data-chart="${block.chart.id}"]`)), block.chart, shared);
});
const drawNow = () => charts.forEach((/** @type {ChartView} */ chart) => chart.draw());
document.addEventListener("themechange", drawNow);
drawNow();
