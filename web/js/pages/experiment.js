/** The experiment page: charts over all runs, one legend, live points, findings swapped in as they come. */

import { Board } from "../lib/board.js";
import { wireHeatChoice } from "../lib/heat.js";
import { Live, pageData, refreshRegions, throttled } from "../lib/live.js";
import { PointStore } from "../lib/points.js";
import { limitOf } from "../lib/zoom.js";

const data = pageData();
const numRuns = data.groups.reduce((sum, { runs }) => sum + runs.length, 0);
const store = new PointStore(Math.min(data.max_points, limitOf(numRuns)));
/** @type {Map<number, Set<number>>} */
const skips = new Map(Object.entries(data.skips).map(([run, steps]) => [Number(run), new Set(steps)]));
const names = [...new Set(data.charts.flatMap((chart) => chart.names))];
const board = new Board(data, `/experiments/${data.id}/points`, store, skips);

function wireFolds() {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-fold]"))) {
    button.hidden = false;
    button.onclick = () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      for (const row of /** @type {NodeListOf<HTMLElement>} */ (button.closest("tbody")?.querySelectorAll(".member")))
        row.hidden = !open;
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

const live = new Live(
  `/api/v1/experiments/${data.id}/stream?${new URLSearchParams({ series: names.join(",") })}`,
  {
    points({ run_id: run, attempt, series }) {
      for (const [name, points] of /** @type {[string, import("../types").Window][]} */ (Object.entries(series))) {
        store.append(run, name, points, attempt);
        if (name === "amp/skipped") noteSkips(run, points);
      }
      board.redraw(Object.keys(series));
    },
    experiment: () => swap(),
    end() {
      live.finish();
      swap();
    },
  },
  { place: data.place, done: data.done },
);

wireFolds();
const heats = /** @type {HTMLElement | null} */ (document.querySelector("[data-heat-choice]"));
if (heats) wireHeatChoice(heats);
board.draw();
