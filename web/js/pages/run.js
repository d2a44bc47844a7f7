/** The run page: its charts, events and log, live. */

import { Board } from "../lib/board.js";
import { drawFigures } from "../lib/figure.js";
import { wireHeat } from "../lib/heat.js";
import { Live, pageData, refreshRegions, throttled } from "../lib/live.js";
import { PointStore } from "../lib/points.js";

const data = pageData();
const explorer = document.querySelector("[data-whatif]");
if (explorer instanceof HTMLElement && data.whatif) {
  const picture = data.whatif;
  const observer = new IntersectionObserver(
    async (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      (await import("../lib/whatif.js")).explore(explorer, picture, data.id);
      explorer.dataset.whatif = "ready";
    },
    { rootMargin: "200px" },
  );
  observer.observe(explorer);
}
const store = new PointStore(data.max_points);
/** @type {Set<number>} */
const skipped = new Set(data.skips);
const log = /** @type {HTMLElement} */ (document.querySelector("[data-log]"));

const board = new Board(data, `/runs/${data.id}/points`, store, new Map([[data.id, skipped]]));
const swap = throttled(() => refreshRegions(() => wireHeat(document)), 1500);

/** @param {number} step */
function showStep(step) {
  const text = document.querySelector("[data-step]");
  /** @type {HTMLProgressElement | null} */
  const bar = document.querySelector("[data-step-progress]");
  if (text) text.textContent = String(step);
  if (bar) bar.value = step;
}

/** @param {string} text */
function addLog(text) {
  const following = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
  log.append(text);
  if ((log.textContent ?? "").length > 400_000) log.textContent = (log.textContent ?? "").slice(-200_000);
  if (following) log.scrollTop = log.scrollHeight;
}

const live = new Live(
  `/api/v1/runs/${data.id}/stream`,
  {
    segment({ attempt, series }) {
      const columns = /** @type {[string, import("../types").Window][]} */ (Object.entries(series));
      for (const [name, points] of columns) {
        store.append(data.id, name, points, attempt);
        if (name === "amp/skipped")
          points.steps.forEach((step, index) => Number(points.values[index]) > 0 && skipped.add(step));
      }
      showStep(Math.max(...columns.map(([, { steps }]) => steps.at(-1) ?? 0)));
      board.redraw(Object.keys(series));
    },
    event: () => swap(),
    log({ text }) {
      addLog(text);
    },
    run: () => swap(),
    end() {
      live.finish();
      refreshRegions(() => wireHeat(document));
    },
  },
  { place: data.place, done: data.done },
);

log.scrollTop = log.scrollHeight;
drawFigures(data.figures ?? [], data);
wireHeat(document);
board.draw();
