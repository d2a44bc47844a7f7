/**
 * One chart on the page: Plotly, the note under it, the table behind it, the full-range button.
 * @typedef {import("../types").Chart} Chart
 * @typedef {import("../types").Drawing} Drawing
 * @typedef {import("../types").PageData} PageData
 * @typedef {import("../types").Closeup} Closeup
 * @typedef {import("../types").Theme} Theme
 * @typedef {{data: PageData, store: import("./points.js").PointStore, groups: () => import("../types").Group[], skips: Map<number, Set<number>>,
 *   load: (names: string[]) => Promise<void>, lookAt: ReturnType<typeof closeupLoader>, onView?: () => void}} Shared
 */

import { loadPlotly } from "./loading.js";
import { decadeTicks, powerTicks } from "./summary.js";
import { tracesOf } from "./traces.js";
import { closeupLoader, lookingAt, windowOf } from "./zoom.js";

/** As the page is shown now. @returns {Theme} */
export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** @param {ParentNode} parent @param {string} selector @returns {HTMLElement} */
const inside = (parent, selector) => /** @type {HTMLElement} */ (parent.querySelector(selector));

/** @param {string} tag @param {string} text @param {string} className */
const made = (tag, text, className = "") => Object.assign(document.createElement(tag), { textContent: text, className });

const figure = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
/** @param {number | undefined} value */
const written = (value) => (value === undefined ? "–" : Number.isFinite(value) ? figure.format(value) : Number.isNaN(value) ? "NaN" : value > 0 ? "+∞" : "−∞");

export class ChartView {
  /** @param {HTMLElement} element a `figure[data-chart]` @param {Chart} chart @param {Shared} shared */
  constructor(element, chart, shared) {
    this.element = element;
    this.chart = chart;
    this.shared = shared;
    this.full = this.drawn = this.seen = this.busy = this.dirty = false;
    /** @type {Closeup | null} */
    this.closeup = null;
    this.problem = "";
    this.turn = 0;
    /** @type {Promise<void> | null} */
    this.loaded = null;
    this.plot = inside(element, "[data-plot]");
    this.button = inside(element, "[data-full-range]");
    this.button.addEventListener("click", () => this.setFull(!this.full));
    this.details = /** @type {HTMLDetailsElement} */ (inside(element, "details"));
    this.details.addEventListener("toggle", () => this.#table());
    new IntersectionObserver((entries) => {
      this.seen = entries.some((entry) => entry.isIntersecting);
      if (this.seen && this.dirty) this.draw();
    }, { rootMargin: "300px" }).observe(element);
  }

  /** @param {boolean} full show every value, however far out */
  setFull(full) {
    this.full = full;
    this.shared.onView?.();
    this.draw();
  }

  /** Draw what the store holds now; a chart far from view waits until it comes near. */
  async draw() {
    this.dirty = true;
    if (!this.seen || this.busy) return;
    this.busy = true;
    try {
      this.loaded ??= this.shared.load(this.chart.names);
      const [Plotly] = await Promise.all([loadPlotly(this.shared.data.plotly), this.loaded]);
      while (this.dirty) {
        this.dirty = false;
        await this.#render(Plotly);
      }
    } catch (error) {
      this.loaded = null; // the next draw asks again
      if (!this.drawn) this.#say(`The points could not be read: ${error instanceof Error ? error.message : error}. Reload the page to try again.`);
    } finally {
      this.busy = false;
    }
  }

  /**
   * Show every stored point of the steps that are looked at, as far as they fit. The last of quick zooms wins.
   * @param {Record<string, any>} change what Plotly says of it
   */
  async zoom(change) {
    const range = windowOf(change, this.#lastStep());
    if (range === undefined) return;
    const turn = (this.turn += 1);
    const curves = this.#curves();
    this.problem = "";
    if (range && curves.some(({ kind }) => kind === "binned")) {
      try {
        const closeup = await this.shared.lookAt(this.chart.series, range, curves.length);
        if (turn !== this.turn) return;
        this.closeup = closeup;
      } catch (error) {
        if (turn !== this.turn) return;
        this.problem = `The exact points could not be read (${error instanceof Error ? error.message : error}): zoom again.`;
      }
    } else if (!this.closeup) return;
    else if (!range) this.closeup = null;
    await this.draw();
  }

  /** What the store holds of every run shown. */
  #curves() {
    return this.shared.groups().flatMap(({ runs }) => runs.flatMap(({ id }) => this.shared.store.get(id, this.chart.series) ?? []));
  }

  #lastStep() {
    return this.#curves().reduce((last, { steps }) => Math.max(last, steps.at(-1) ?? 0), this.shared.data.steps);
  }

  /** @param {any} Plotly */
  async #render(Plotly) {
    const theme = currentTheme();
    const drawing = tracesOf(this.chart, this.shared.groups(), lookingAt(this.shared.store, this.closeup), { theme, full: this.full, skips: this.shared.skips });
    this.#note(drawing);
    if (drawing.empty && !this.drawn) return this.#say(this.shared.data.waiting ? "No points yet: they appear as runs write them." : "No run wrote this series.");
    const layout = this.#layout(theme, drawing);
    if (!this.drawn) this.plot.replaceChildren();
    await (this.drawn ? Plotly.react : Plotly.newPlot)(this.plot, drawing.traces, layout, this.shared.data.config);
    if (!this.drawn) /** @type {any} */ (this.plot).on("plotly_relayout", (/** @type {Record<string, any>} */ change) => this.zoom(change));
    this.drawn = true;
    this.#table();
  }

  /** @param {Theme} theme @param {Drawing} drawing */
  #layout(theme, { range, log }) {
    const colours = this.shared.data.themes[theme];
    const layout = structuredClone(this.chart.layout);
    layout.font.color = colours.text;
    layout.hoverlabel = { bgcolor: colours.hover, bordercolor: colours.line, font: { color: colours.strong, size: 12 }, namelength: 40 };
    for (const axis of [layout.xaxis, layout.yaxis, layout.yaxis2].filter(Boolean)) Object.assign(axis, { gridcolor: colours.grid, linecolor: colours.line, tickcolor: colours.line });
    layout.xaxis.range = [0, (this.#lastStep() || 1) * 1.015]; // a run may make more steps than it said, or say none
    if (range) Object.assign(layout.yaxis, { range, autorange: false });
    if (this.chart.log && !log) layout.yaxis.type = "linear";
    if (range && log) Object.assign(layout.yaxis, this.chart.powers ? powerTicks(range) : decadeTicks(range));
    layout.yaxis.uirevision = `${this.full}`;
    layout.yaxis3 = { overlaying: "y", range: [0, 1], visible: false, fixedrange: true };
    return layout;
  }

  /** @param {string} text shown where the chart would be */
  #say(text) {
    this.plot.replaceChildren(made("div", text, "empty"));
  }

  /** @param {Drawing} drawing */
  #note({ notes, clips }) {
    this.button.hidden = !clips;
    this.button.setAttribute("aria-pressed", String(this.full));
    this.button.textContent = this.full ? "robust range" : "full range";
    const parts = [{ text: this.chart.help }, ...notes, { text: this.problem, bad: true }].filter(({ text }) => text);
    inside(this.element, "[data-note]").replaceChildren(...parts.map((/** @type {import("../types").Note} */ { text, bad, clip }) => made("span", text, bad ? "bad" : clip ? "clip" : "")));
  }

  #table() {
    if (!this.details.open) return;
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const label of ["Recipe", "Run", "Points", "Last step", "Last", "Lowest", "Highest"]) head.append(Object.assign(made("th", label), { scope: "col" }));
    const body = table.createTBody();
    for (const group of this.shared.groups()) {
      for (const run of group.runs) {
        const points = this.shared.store.get(run.id, this.chart.series);
        if (!points?.steps.length) continue;
        const finite = points.values.filter(Number.isFinite);
        const [low, high] = finite.length ? [finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b))] : [];
        const row = body.insertRow();
        for (const text of [group.name, run.label, points.stored, points.steps.at(-1), written(points.values.at(-1)), written(low), written(high)]) row.insertCell().textContent = String(text);
      }
    }
    inside(this.element, "[data-table]").replaceChildren(table);
  }
}
