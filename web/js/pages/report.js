/** A report: each of its chart blocks as a chart of its own, live while a run of it is going. */

import { remember } from "../lib/address.js";
import { wireButtons } from "../lib/buttons.js";
import { ChartView } from "../lib/chart.js";
import { Live, pageData } from "../lib/live.js";
import { liveDrawing, pointLoader } from "../lib/loading.js";
import { PointStore } from "../lib/points.js";
import { settingsOf } from "../lib/settings.js";
import { closeupLoader, limitOf } from "../lib/zoom.js";

const data = /** @type {any} */ (pageData());
const { log, full } = settingsOf(location.search);

/** @type {{view: ChartView, ids: Set<number>}[]} */
const charts = data.blocks.map((/** @type {any} */ block) => {
  const points = `/compare/${block.ids.join(",")}/points`;
  const store = new PointStore(Math.min(block.max_points, limitOf(block.ids.length)));
  const page = { ...data, id: 0, steps: block.steps, charts: [block.chart], groups: block.groups, skips: {} };
  const settings = { ...settingsOf(""), log, full };
  const groups = () => block.groups;
  const shared = {
    data: page,
    store,
    skips: new Map(),
    settings,
    load: pointLoader(points, store),
    lookAt: closeupLoader(points),
    groups,
    onView: keep,
  };
  const view = new ChartView(
    /** @type {HTMLElement} */ (document.querySelector(`[data-chart="${block.chart.id}"]`)),
    block.chart,
    shared,
  );
  view.full = full.has(block.chart.id);
  wireButtons(view, { onChange: keep, groups });
  return { view, ids: new Set(block.ids) };
});
const views = charts.map(({ view }) => view);
const redraw = liveDrawing(views);

/** The address gives the same scales after a reload. */
function keep() {
  remember("log", [...log]);
  remember("full", [...full]);
}

document.addEventListener("themechange", () => views.forEach((view) => view.draw()));
views.forEach((view) => view.draw());
if (data.stream) {
  const live = new Live(
    data.stream,
    {
      points({ run_id: run, attempt, series }) {
        for (const { view, ids } of charts)
          if (ids.has(run))
            for (const name of view.chart.names)
              if (series[name]) view.shared.store.append(run, name, series[name], attempt);
        redraw(Object.keys(series));
      },
      end: () => live.finish(),
    },
    { place: data.place, done: data.done },
  );
}
