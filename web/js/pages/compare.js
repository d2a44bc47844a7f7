/** The comparison page: charts over the compared runs, and a brush over parallel coordinates that narrows them. */

import { kept, parsed, rangeOf, shareOf, spelled } from "../lib/brush.js";
import { ChartView } from "../lib/chart.js";
import { pageData } from "../lib/live.js";
import { pointLoader } from "../lib/loading.js";
import { PointStore } from "../lib/points.js";
import { closeupLoader, limitOf } from "../lib/zoom.js";

/** @type {import("../types").PageData & {ids: number[], axes: import("../lib/brush.js").Axis[]}} */
const data = /** @type {any} */ (pageData());
const TOP = 34, FOOT = 274; // of an axis in the drawing, as server/pages/parallel.py places them
const points = `/compare/${data.ids.join(",")}/points`;
const store = new PointStore(Math.min(data.max_points, limitOf(data.ids.length)));
const view = new URLSearchParams(location.search);
const hidden = new Set(view.getAll("hide"));
/** @type {Map<string, [number, number]>} */
const ranges = parsed(view.getAll("brush"), data.axes);
/** @type {Set<number>} */
const left = new Set(data.ids);
/** @type {SVGSVGElement | null} */
const drawing = document.querySelector("[data-parallel]");
const clear = /** @type {HTMLElement | null} */ (document.querySelector("[data-brush-clear]"));

/** @returns {import("../types").Group[]} */
function groups() {
  const shown = data.groups.filter((/** @type {import("../types").Group} */ group) => !hidden.has(group.name));
  return shown.map((/** @type {import("../types").Group} */ group) => ({ ...group, runs: group.runs.filter(({ id }) => left.has(id)) }));
}

const skips = new Map(Object.entries(data.skips).map(([run, steps]) => [Number(run), new Set(/** @type {number[]} */ (steps))]));
const shared = { data, store, skips, load: pointLoader(points, store), lookAt: closeupLoader(points), groups, onView: remember };
const charts = data.charts.map((/** @type {import("../types").Chart} */ chart) => new ChartView(/** @type {HTMLElement} */ (document.querySelector(`[data-chart="${chart.id}"]`)), chart, shared));
for (const chart of charts) chart.full = view.getAll("full").includes(chart.chart.id);
const drawNow = () => charts.forEach((/** @type {ChartView} */ chart) => chart.draw());

/** The address shows the same after a reload and to whoever gets the link. */
function remember() {
  const now = new URLSearchParams(location.search);
  for (const name of ["hide", "full", "brush"]) now.delete(name);
  for (const name of hidden) now.append("hide", name);
  for (const chart of charts) if (chart.full) now.append("full", chart.chart.id);
  for (const word of spelled(ranges)) now.append("brush", word);
  history.replaceState(null, "", `${location.pathname}?${String(now).replaceAll("%2C", ",").replaceAll("%3A", ":")}${location.hash}`);
}

function wireLegend() {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-legend] [data-recipe]"))) {
    const name = button.dataset.recipe ?? "";
    const show = () => button.setAttribute("aria-pressed", String(!hidden.has(name)));
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      show();
      remember();
      drawNow();
    });
    show();
  }
}

/** Show which runs the ranges leave: in the drawing, in the table, in the charts. */
function applyRanges() {
  const keeps = kept(data.axes, ranges, data.ids.length, TOP, FOOT);
  left.clear();
  data.ids.forEach((/** @type {number} */ id, /** @type {number} */ index) => {
    if (keeps[index]) left.add(id);
    document.querySelector(`[data-line="${id}"]`)?.classList.toggle("out", !keeps[index]);
    document.querySelector(`tr[data-run="${id}"]`)?.classList.toggle("out", !keeps[index]);
  });
  for (const axis of /** @type {NodeListOf<SVGGElement>} */ (document.querySelectorAll("[data-axis]"))) showRange(axis, ranges.get(axis.dataset.axis ?? ""));
  const told = document.querySelector("[data-shown]");
  if (told) told.textContent = ranges.size ? `${left.size} of ${data.ids.length} runs within the ranges` : "";
  if (clear) clear.hidden = !ranges.size;
  drawNow();
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
    remember();
  });
  grab.addEventListener("pointercancel", () => (start = null));
}

function wireFields() {
  for (const field of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-range]"))) {
    const [low, high] = [field.querySelector("[data-low]"), field.querySelector("[data-high]")].map((input) => /** @type {HTMLInputElement} */ (input));
    field.addEventListener("input", () => setRange(field.dataset.range ?? "", rangeOf(Number(low.value) / 100, Number(high.value) / 100)));
    field.addEventListener("change", remember);
  }
}

clear?.addEventListener("click", () => {
  ranges.clear();
  applyRanges();
  remember();
});
if (drawing) for (const axis of /** @type {NodeListOf<SVGGElement>} */ (drawing.querySelectorAll("[data-axis]"))) wireAxis(axis);
wireFields();
wireLegend();
document.addEventListener("themechange", drawNow);
applyRanges();
