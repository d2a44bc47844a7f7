/** One chart on the page: Plotly, the note under it, the table behind it, the full-range button. */

import { decadeTicks, powerTicks } from "./summary.js";
import { tracesOf } from "./traces.js";

let loading = null;

/** Load Plotly once, after the text is there. */
export function loadPlotly(url) {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    Object.assign(script, { src: url, async: true, onload: () => resolve(window.Plotly), onerror: () => reject(new Error("Plotly could not be loaded")) });
    document.head.append(script);
  });
  return loading;
}

/** `light` or `dark`, as the page is shown now. */
export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

const figure = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
const written = (value) => (value === undefined ? "–" : Number.isFinite(value) ? figure.format(value) : Number.isNaN(value) ? "NaN" : value > 0 ? "+∞" : "−∞");

export class ChartView {
  /** @param {HTMLElement} element a `figure[data-chart]` @param {object} chart @param {object} shared `{data, store, groups, skips, onView}` */
  constructor(element, chart, shared) {
    Object.assign(this, { element, chart, shared, full: false, drawn: false, seen: false, busy: false });
    this.plot = element.querySelector("[data-plot]");
    this.button = element.querySelector("[data-full-range]");
    this.button.addEventListener("click", () => this.setFull(!this.full));
    element.querySelector("details").addEventListener("toggle", () => this.#table());
    new IntersectionObserver((entries) => {
      this.seen = entries.some((entry) => entry.isIntersecting);
      if (this.seen && this.dirty) this.draw();
    }, { rootMargin: "300px" }).observe(element);
  }

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
      const Plotly = await loadPlotly(this.shared.data.plotly);
      while (this.dirty) {
        this.dirty = false;
        await this.#render(Plotly);
      }
    } finally {
      this.busy = false;
    }
  }

  async #render(Plotly) {
    const theme = currentTheme();
    const result = tracesOf(this.chart, this.shared.groups(), this.shared.store, { theme, full: this.full, skips: this.shared.skips });
    this.#note(result);
    if (result.empty && !this.drawn) return this.#placeholder();
    const layout = this.#layout(theme, result.range);
    if (!this.drawn) this.plot.replaceChildren();
    await (this.drawn ? Plotly.react : Plotly.newPlot)(this.plot, result.traces, layout, this.shared.data.config);
    if (!this.drawn && this.shared.onZoom) this.plot.on("plotly_relayout", (change) => this.shared.onZoom(this, change));
    this.drawn = true;
    this.#table();
  }

  #layout(theme, range) {
    const colours = this.shared.data.themes[theme];
    const layout = structuredClone(this.chart.layout);
    layout.font.color = colours.text;
    layout.hoverlabel = { bgcolor: colours.hover, bordercolor: colours.line, font: { color: colours.strong, size: 12 } };
    for (const axis of [layout.xaxis, layout.yaxis, layout.yaxis2].filter(Boolean)) Object.assign(axis, { gridcolor: colours.grid, linecolor: colours.line, tickcolor: colours.line });
    if (range) Object.assign(layout.yaxis, { range, autorange: false });
    if (range && this.chart.log) Object.assign(layout.yaxis, this.chart.powers ? powerTicks(range) : decadeTicks(range));
    layout.yaxis.uirevision = `${this.full}`;
    layout.yaxis3 = { overlaying: "y", range: [0, 1], visible: false, fixedrange: true };
    return layout;
  }

  #placeholder() {
    const note = document.createElement("div");
    note.className = "empty";
    note.textContent = this.shared.data.waiting ? "No points yet: they appear as runs write them." : "No run wrote this series.";
    this.plot.replaceChildren(note);
  }

  #note({ notes, clips }) {
    this.button.hidden = !clips;
    this.button.setAttribute("aria-pressed", String(this.full));
    this.button.textContent = this.full ? "robust range" : "full range";
    const parts = [{ text: this.chart.help }, notes.sampled && { text: notes.sampled }, ...notes].filter((part) => part?.text);
    this.element.querySelector("[data-note]").replaceChildren(...parts.map(({ text, bad, clip }) => Object.assign(document.createElement("span"), { textContent: text, className: bad ? "bad" : clip ? "clip" : "" })));
  }

  #table() {
    if (!this.element.querySelector("details").open) return;
    const rows = this.shared.groups().flatMap((group) => group.runs.map((run) => [group.name, run, this.shared.store.get(run.id, this.chart.series)])).filter(([, , points]) => points?.steps.length);
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const label of ["Recipe", "Run", "Points", "Last step", "Last", "Lowest", "Highest"]) head.append(Object.assign(document.createElement("th"), { textContent: label, scope: "col" }));
    const body = table.createTBody();
    for (const [name, run, points] of rows) {
      const finite = points.values.filter(Number.isFinite);
      const cells = [name, run.label, points.stored, points.steps.at(-1), written(points.values.at(-1)), written(finite.length ? finite.reduce((a, b) => Math.min(a, b)) : undefined), written(finite.length ? finite.reduce((a, b) => Math.max(a, b)) : undefined)];
      const row = body.insertRow();
      for (const text of cells) row.insertCell().textContent = text;
    }
    this.element.querySelector("[data-table]").replaceChildren(table);
  }
}
