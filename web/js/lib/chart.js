/**
 * One chart on the page: Plotly, the note under it, the table behind it, the full-range button.
 * @typedef {import("../types").Chart} Chart
 * @typedef {import("../types").Drawing} Drawing
 * @typedef {import("../types").PageData} PageData
 * @typedef {import("../types").Closeup} Closeup
 * @typedef {import("../types").Theme} Theme
 * @typedef {{data: PageData, store: import("./points.js").PointStore, groups: () => import("../types").Group[], skips: Map<number, Set<number>>,
 *   load: (names: string[]) => Promise<void>, lookAt: ReturnType<typeof closeupLoader>, onView?: () => void, settings?: import("./settings.js").ChartSettings,
 *   hiding?: (series: string) => string[], show?: (names: string[]) => void, onRange?: (range: [number, number] | null) => void, onHover?: (chart: ChartView, x: number | null) => void}} Shared
 */

import { AXES, abscissae, lastPlace, placeOf, stepsWithin, timeUnit } from "./axes.js";
import { inTurn, loadPlotly, pause } from "./loading.js";
import { settingsOf } from "./settings.js";
import { decadeTicks, powerTicks } from "./summary.js";
import { tracesOf } from "./traces.js";
import { closeupLoader, lookingAt, rangeOf } from "./zoom.js";

/** As the page is shown now. @returns {Theme} */
export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** @param {ParentNode} parent @param {string} selector @returns {HTMLElement} */
const inside = (parent, selector) => /** @type {HTMLElement} */ (parent.querySelector(selector));

/** @param {string} tag @param {string} text @param {string} className */
const made = (tag, text, className = "") =>
  Object.assign(document.createElement(tag), { textContent: text, className });

const figure = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
/** @param {number | undefined} value */
const written = (value) =>
  value === undefined
    ? "–"
    : Number.isFinite(value)
      ? figure.format(value)
      : Number.isNaN(value)
        ? "NaN"
        : value > 0
          ? "+∞"
          : "−∞";

/** A round step of at least that size. @param {number} least */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return ([1, 2, 5].find((factor) => factor * power >= least) ?? 10) * power;
}

export class ChartView {
  /** @param {HTMLElement} element a `figure[data-chart]` @param {Chart} chart @param {Shared} shared */
  constructor(element, chart, shared) {
    this.element = element;
    this.chart = chart;
    this.shared = shared;
    this.settings = shared.settings ?? settingsOf("");
    this.full = this.drawn = this.seen = this.busy = this.dirty = this.near = this.listening = false;
    /** @type {Closeup | null} */
    this.closeup = null;
    this.problem = "";
    this.turn = this.resets = 0;
    /** @type {HTMLElement | null} */
    this.hair = null;
    /** @type {Promise<void> | null} */
    this.loaded = null;
    this.plot = inside(element, "[data-plot]");
    this.button = inside(element, "[data-full-range]");
    this.button.addEventListener("click", () => this.setFull(!this.full));
    this.details = /** @type {HTMLDetailsElement} */ (inside(element, "details:not(.save-menu)"));
    this.details.addEventListener("toggle", () => this.#table());
    new IntersectionObserver(
      (entries) => {
        this.seen = entries.some((entry) => entry.isIntersecting);
        if (this.seen && this.dirty) this.draw();
      },
      { rootMargin: "300px" },
    ).observe(element);
  }

  /** @param {boolean} full show every value, however far out */
  setFull(full) {
    this.full = full;
    this.shared.settings?.full[full ? "add" : "delete"](this.chart.id);
    this.shared.onView?.();
    this.draw();
  }

  /** Draw what the store holds now; a chart far from view waits until it comes near. */
  async draw() {
    this.dirty = true;
    if (!this.seen || this.busy) return;
    this.busy = true;
    try {
      const plotly = loadPlotly(this.shared.data.plotly);
      while (this.dirty) {
        this.dirty = false;
        const coming = (this.loaded ??= this.shared.load(this.chart.names));
        const [Plotly] = await Promise.all([plotly, coming]);
        if (this.loaded === coming) await inTurn(() => this.#render(Plotly)); // else somebody asked for other points meanwhile
      }
    } catch (error) {
      this.loaded = null; // the next draw asks again
      if (!this.drawn)
        this.#say(
          `The points could not be read: ${error instanceof Error ? error.message : error}. Reload the page to try again.`,
        );
    } finally {
      this.busy = false;
    }
  }

  /** Somebody zoomed here: the page's charts follow, those of a page without shared settings alone. @param {Record<string, any>} change what Plotly says of it */
  zoom(change) {
    let range = rangeOf(change);
    if (range === undefined) return;
    if (range && this.settings.axis !== "wall" && range[0] <= 0 && range[1] >= this.#last()) range = null;
    if (this.shared.onRange) this.shared.onRange(range);
    else {
      this.settings.range = range;
      this.look();
    }
  }

  /** Show every stored point of the window that is looked at, as far as they fit. The last of quick zooms wins. */
  async look() {
    const { range } = this.settings;
    const turn = (this.turn += 1);
    this.problem = "";
    const curves = this.#curves();
    const steps = range && curves.some(({ points }) => points.kind === "binned") ? this.#window(range, curves) : null;
    if (!range) this.resets += 1;
    if (!steps) this.closeup = null;
    else if (this.seen) {
      try {
        const closeup = await this.shared.lookAt(this.chart.series, steps, curves.length);
        if (turn !== this.turn) return;
        this.closeup = closeup;
      } catch (error) {
        if (turn !== this.turn) return;
        this.problem = `The exact points could not be read (${error instanceof Error ? error.message : error}): zoom again.`;
      }
    } else this.near = true; // the exact points are asked for when the chart comes near
    await this.draw();
  }

  /** Ask for the points anew: another axis needs their times. */
  reload() {
    this.loaded = null;
    this.closeup = null;
    return this.draw();
  }

  /** What the store holds of every run shown, and where it lies along the axis. */
  #curves() {
    return this.shared.groups().flatMap(({ runs }) =>
      runs.flatMap((run) => {
        const points = this.shared.store.get(run.id, this.chart.series);
        return points ? [{ points, x: abscissae(this.settings.axis, points, run) }] : [];
      }),
    );
  }

  /** The steps between two places of the axis. @param {[number, number]} range @param {{points: import("../types").Points, x: number[]}[]} curves @returns {[number, number] | null} */
  #window(range, curves) {
    return this.settings.axis === "step" ? [Math.floor(range[0]), Math.ceil(range[1])] : stepsWithin(curves, range);
  }

  #last() {
    return lastPlace(this.#curves(), this.settings, this.shared.data.steps);
  }

  /** @param {any} Plotly */
  async #render(Plotly) {
    const theme = currentTheme();
    const { axis, smooth, minus } = this.settings;
    const chart = { ...this.chart, log: this.isLog() };
    const drawing = tracesOf(chart, this.shared.groups(), lookingAt(this.shared.store, this.closeup), {
      theme,
      full: this.full,
      skips: this.shared.skips,
      axis,
      smooth,
    });
    if (minus) drawing.notes.unshift({ text: "difference from the pinned runs, at equal steps" });
    this.#note(drawing);
    const hiding = drawing.empty ? (this.shared.hiding?.(this.chart.series) ?? []) : [];
    if (hiding.length) return this.#offer(hiding, Plotly);
    if (drawing.empty && !this.drawn) return this.#say(this.#why());
    const layout = this.#layout(theme, drawing);
    await pause();
    if (!this.drawn) this.plot.replaceChildren();
    await (this.drawn ? Plotly.react : Plotly.newPlot)(this.plot, drawing.traces, layout, this.shared.data.config);
    if (!this.drawn) this.#listen();
    this.drawn = true;
    this.#table();
    if (this.near && this.settings.range) {
      this.near = false;
      this.look();
    }
  }

  /** Whether the y axis is logarithmic. Differences have signs, so theirs is linear until somebody asks. */
  isLog() {
    const chosen = this.settings.log.has(this.chart.id);
    return this.settings.minus ? chosen : this.chart.log !== chosen;
  }

  /** Why nothing is drawn. */
  #why() {
    if (this.shared.data.waiting) return "No points yet: they appear as runs write them.";
    return this.settings.minus
      ? "The pinned runs have no step of this series in common with these."
      : "No run wrote this series.";
  }

  /** Everything that has this series is hidden: say so, with a way back. @param {string[]} names @param {any} Plotly */
  #offer(names, Plotly) {
    if (this.drawn) Plotly.purge(this.plot);
    this.drawn = false;
    const box = made("div", "", "empty"),
      button = Object.assign(document.createElement("button"), {
        type: "button",
        className: "button small",
        textContent: names.length > 1 ? "Show them" : `Show ${names[0]}`,
      });
    button.addEventListener("click", () => this.shared.show?.(names));
    box.append(
      made(
        "p",
        names.length > 1 ? `Hidden: ${names.join(", ")}.` : `${names[0]} is hidden, and nothing else has this series.`,
      ),
      button,
    );
    this.plot.replaceChildren(box);
    this.#table();
  }

  #listen() {
    const plot = /** @type {any} */ (this.plot);
    plot.on("plotly_relayout", (/** @type {Record<string, any>} */ change) => this.zoom(change));
    if (!this.shared.onHover || this.listening) return;
    this.listening = true; // those of the element outlive its plot
    plot.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      const axis = plot._fullLayout?.xaxis,
        at = event.clientX - plot.getBoundingClientRect().left - axis?._offset;
      this.shared.onHover?.(this, at >= 0 && at <= axis._length ? axis.p2d(at) : null);
    });
    plot.addEventListener("pointerleave", () => this.shared.onHover?.(this, null));
  }

  /** A line at a place of the axis where another chart is looked at; null takes it away. @param {number | null} x */
  point(x) {
    this.hair ??= /** @type {HTMLElement | null} */ (this.element.querySelector("[data-hair]"));
    const axes = /** @type {any} */ (this.plot)._fullLayout;
    if (!this.hair || !axes?.xaxis?.d2p) return;
    const at = x === null ? NaN : axes.xaxis.d2p(x);
    const inside = at >= 0 && at <= axes.xaxis._length;
    this.hair.hidden = !inside;
    if (inside)
      Object.assign(this.hair.style, {
        left: `${this.plot.offsetLeft + axes.xaxis._offset + at}px`,
        top: `${this.plot.offsetTop}px`,
        height: `${this.plot.offsetHeight}px`,
      });
  }

  /** @param {Theme} theme @param {Drawing} drawing */
  #layout(theme, { range, log }) {
    const colours = this.shared.data.themes[theme];
    const layout = structuredClone(this.chart.layout);
    layout.font.color = colours.text;
    layout.hoverlabel = {
      bgcolor: colours.hover,
      bordercolor: colours.line,
      font: { color: colours.strong, size: 12 },
      namelength: 40,
    };
    for (const axis of [layout.xaxis, layout.yaxis, layout.yaxis2, layout.yaxis4].filter(Boolean))
      Object.assign(axis, { gridcolor: colours.grid, linecolor: colours.line, tickcolor: colours.line });
    this.#place(layout);
    if (this.chart.marks) Object.assign(layout, this.#divergences(theme));
    if (range) Object.assign(layout.yaxis, { range, autorange: false });
    layout.yaxis.type = log ? "log" : "linear";
    if ((log && !this.chart.log) || this.settings.minus) layout.yaxis.rangemode = "normal";
    if (this.settings.minus) layout.yaxis.title.text = `difference: ${layout.yaxis.title.text}`;
    if (range && log) Object.assign(layout.yaxis, this.chart.powers ? powerTicks(range) : decadeTicks(range));
    layout.yaxis.uirevision = `${this.full}${log}${this.resets}`;
    layout.uirevision = layout.xaxis.uirevision = `${this.settings.axis}${this.settings.range}`;
    layout.yaxis3 = { overlaying: "y", range: [0, 1], visible: false, fixedrange: true };
    return layout;
  }

  /** Where recipes left the baseline for good: a line at the step, named. @param {Theme} theme */
  #divergences(theme) {
    const found = this.shared.groups().flatMap((group) => {
      const mark = (this.shared.data.marks ?? []).find(({ recipe }) => recipe === group.name);
      const curve = group.runs
        .map((run) => ({ run, points: this.shared.store.get(run.id, this.chart.series) }))
        .find(({ points }) => points?.steps.length);
      if (!mark || !curve?.points) return [];
      const x = placeOf(mark.step, curve.points.steps, abscissae(this.settings.axis, curve.points, curve.run));
      return Number.isFinite(x) ? [{ x, color: group.style.colour[theme], text: mark.text }] : [];
    });
    return {
      shapes: found.map(({ x, color }) => ({
        type: "line",
        xref: "x",
        yref: "paper",
        x0: x,
        x1: x,
        y0: 0,
        y1: 1,
        line: { color, width: 1.5, dash: "dash" },
      })),
      annotations: found.map(({ x, color, text }, index) => ({
        x,
        xref: "x",
        y: 1 - 0.09 * index,
        yref: "paper",
        text,
        showarrow: false,
        xanchor: "left",
        xshift: 4,
        font: { size: 11, color },
      })),
    };
  }

  /** The x axis: its title, its range, and ticks in the unit that people would use. @param {Record<string, any>} layout */
  #place(layout) {
    const axis = layout.xaxis;
    const name = this.settings.axis,
      last = this.#last() || 1;
    const range = this.settings.range && [...this.settings.range]; // Plotly writes into what it is given
    if (name !== "step") axis.title.text = AXES[name].title; // what steps count is in the layout
    if (name === "wall") {
      const firsts = this.#curves()
        .map(({ x }) => x[0])
        .filter(Number.isFinite);
      const first = firsts.reduce((a, b) => Math.min(a, b), last);
      layout.margin.b += 16; // the date stands under the time
      Object.assign(axis, {
        type: "date",
        tickformat: "",
        nticks: Math.max(2, Math.floor(this.plot.clientWidth / 110)),
        rangemode: "normal",
        range: range ?? [first, last + (last - first) * 0.015],
      });
      return;
    }
    axis.range = range ?? [0, last * 1.015]; // a run may make more steps than it said, or say none
    if (name !== "time") return;
    const { divisor, name: unit } = timeUnit(last);
    const step = niceStep((axis.range[1] - axis.range[0]) / divisor / 6),
      first = Math.ceil(axis.range[0] / divisor / step);
    const ticks = Array.from({ length: 12 }, (_, index) => (first + index) * step).filter(
      (tick) => tick * divisor <= axis.range[1],
    );
    Object.assign(axis, {
      tickmode: "array",
      tickvals: ticks.map((tick) => tick * divisor),
      ticktext: ticks.map((tick) => `${Number(tick.toPrecision(6))} ${unit}`),
    });
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
    inside(this.element, "[data-note]").replaceChildren(
      ...parts.map((/** @type {import("../types").Note} */ { text, bad, clip }) =>
        made("span", text, bad ? "bad" : clip ? "clip" : ""),
      ),
    );
  }

  #table() {
    if (!this.details.open) return;
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const label of ["Recipe", "Run", "Points", "Last step", "Last", "Lowest", "Highest"])
      head.append(Object.assign(made("th", label), { scope: "col" }));
    const body = table.createTBody();
    for (const group of this.shared.groups()) {
      for (const run of group.runs) {
        const points = this.shared.store.get(run.id, this.chart.series);
        if (!points?.steps.length) continue;
        const finite = points.values.filter(Number.isFinite);
        const [low, high] = finite.length
          ? [finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b))]
          : [];
        const row = body.insertRow();
        for (const text of [
          group.name,
          run.label,
          points.stored,
          points.steps.at(-1),
          written(points.values.at(-1)),
          written(low),
          written(high),
        ])
          row.insertCell().textContent = String(text);
      }
    }
    inside(this.element, "[data-table]").replaceChildren(table);
  }
}
