/** The comparison page: one board of live charts over the compared runs, and a brush that narrows them. */

import { remember, valuesOf } from "../lib/address.js";
import { Board } from "../lib/board.js";
import { kept, parsed, rangeOf, shareOf, spelled } from "../lib/brush.js";
import { differenceTail } from "../lib/difference.js";
import { Live, pageData, refreshRegions, throttled } from "../lib/live.js";
import { PointStore } from "../lib/points.js";
import { limitOf } from "../lib/zoom.js";

/** @type {import("../types").PageData & {ids: number[], axes: import("../lib/brush.js").Axis[]}} */
const data = /** @type {any} */ (pageData());
const TOP = 34,
  FOOT = 274; // of an axis in the drawing, as server/pages/parallel.py places them
const store = new PointStore(Math.min(data.max_points, limitOf(data.ids.length)));
/** @type {Map<string, [number, number]>} */
const ranges = parsed(valuesOf("brush"), data.axes);
/** @type {Set<number>} */
const left = new Set(data.ids);
/** @type {SVGSVGElement | null} */
const drawing = document.querySelector("[data-parallel]");
const clear = /** @type {HTMLElement | null} */ (document.querySelector("[data-brush-clear]"));
/** @type {Map<number, Set<number>>} */
const skips = new Map(
  Object.entries(data.skips).map(([run, steps]) => [Number(run), new Set(/** @type {number[]} */ (steps))]),
);
const names = [...new Set(data.charts.flatMap((chart) => chart.names))];

const board = new Board(data, `/compare/${data.ids.join(",")}/points`, store, skips);
board.keeps = (/** @type {number} */ id) => left.has(id);
const rememberRanges = () => remember("brush", spelled(ranges));
const addDifferences = differenceTail(board, data.ids);

/** @param {number} run @param {import("../types").Window} window */
function noteSkips(run, { steps, values }) {
  const known = skips.get(run) ?? new Set();
  skips.set(run, known);
  steps.forEach((step, index) => Number(values[index]) > 0 && known.add(step));
}

/** The rows of the runs that the ranges leave out are faint. */
function markRows() {
  for (const id of data.ids) document.querySelector(`tr[data-run="${id}"]`)?.classList.toggle("out", !left.has(id));
}

/** Show which runs the ranges leave: in the drawing, in the table, in the charts. */
function applyRanges() {
  const keeps = kept(data.axes, ranges, data.ids.length, TOP, FOOT);
  left.clear();
  data.ids.forEach((/** @type {number} */ id, /** @type {number} */ index) => {
    if (keeps[index]) left.add(id);
    document.querySelector(`[data-line="${id}"]`)?.classList.toggle("out", !keeps[index]);
  });
  markRows();
  for (const axis of /** @type {NodeListOf<SVGGElement>} */ (document.querySelectorAll("[data-parallel] [data-axis]")))
    showRange(axis, ranges.get(axis.dataset.axis ?? ""));
  const told = document.querySelector("[data-shown]");
  if (told) told.textContent = ranges.size ? `${left.size} of ${data.ids.length} runs within the ranges` : "";
  if (clear) clear.hidden = !ranges.size;
  board.draw();
}

/** @param {SVGGElement} axis @param {[number, number] | undefined} range */
function showRange(axis, range) {
  const [low, high] = range ?? [0, 0];
  const box = axis.querySelector(".brushed");
  box?.setAttribute("y", String(FOOT - high * (FOOT - TOP)));
  box?.setAttribute("height", String(Math.max(range ? 2 : 0, (high - low) * (FOOT - TOP))));
  const field = document.querySelector(`[data-range="${CSS.escape(axis.dataset.axis ?? "")}"]`);
  const [from, to] = range ?? [0, 1];
  const lowest = /** @type {HTMLInputElement | null} */ (field?.querySelector("[data-low]") ?? null);
  const highest = /** @type {HTMLInputElement | null} */ (field?.querySelector("[data-high]") ?? null);
  if (lowest) lowest.value = String(Math.round(from * 100));
  if (highest) highest.value = String(Math.round(to * 100));
}

/** @param {string} key @param {[number, number] | null} range */
function setRange(key, range) {
  if (range) ranges.set(key, range);
  else ranges.delete(key);
  applyRanges();
}

/** @param {SVGGElement} axis */
function wireAxis(axis) {
  const key = axis.dataset.axis ?? "";
  const grab = /** @type {SVGRectElement} */ (axis.querySelector(".grab"));
  /** @type {number | null} */
  let start = null;
  const at = (/** @type {PointerEvent} */ event) => {
    const box = /** @type {SVGSVGElement} */ (drawing).getBoundingClientRect();
    const height = /** @type {SVGSVGElement} */ (drawing).viewBox.baseVal.height;
    return shareOf(((event.clientY - box.top) / box.height) * height, TOP, FOOT);
  };
  grab.addEventListener("pointerdown", (event) => {
    start = at(event);
    grab.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  grab.addEventListener("pointermove", (event) => {
    if (start !== null) setRange(key, rangeOf(start, at(event)));
  });
  grab.addEventListener("pointerup", (event) => {
    if (start !== null && Math.abs(at(event) - start) < 0.01) setRange(key, null); // a click takes the range away
    start = null;
    rememberRanges();
  });
  grab.addEventListener("pointercancel", () => (start = null));
}

function wireFields() {
  for (const field of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-range]"))) {
    const [low, high] = [field.querySelector("[data-low]"), field.querySelector("[data-high]")].map(
      (input) => /** @type {HTMLInputElement} */ (input),
    );
    field.addEventListener("input", () =>
      setRange(field.dataset.range ?? "", rangeOf(Number(low.value) / 100, Number(high.value) / 100)),
    );
    field.addEventListener("change", rememberRanges);
  }
}

clear?.addEventListener("click", () => {
  ranges.clear();
  applyRanges();
  rememberRanges();
});
if (drawing)
  for (const axis of /** @type {NodeListOf<SVGGElement>} */ (drawing.querySelectorAll("[data-axis]"))) wireAxis(axis);
wireFields();
applyRanges();

const swap = throttled(() => refreshRegions(markRows), 1500);
const live = new Live(
  `/compare/${data.ids.join(",")}/stream?${new URLSearchParams({ series: names.join(",") })}`,
  {
    points({ run_id: run, attempt, series }) {
      const columns = /** @type {[string, import("../types").Window][]} */ (Object.entries(series));
      for (const [name, points] of columns) if (name === "amp/skipped") noteSkips(run, points);
      swap();
      if (board.settings.minus) return addDifferences(run, Object.keys(series));
      for (const [name, points] of columns) store.append(run, name, points, attempt);
      board.redraw(Object.keys(series));
    },
    runs: () => swap(),
    end() {
      live.finish();
      swap();
    },
  },
  { place: data.place, done: data.done },
);
