/**
 * All charts of a page together: one legend, one set of settings, one window, one line under the pointer.
 * @typedef {import("../types").Group} Group
 * @typedef {import("../types").PageData} PageData
 */

import { remember, valuesOf } from "./address.js";
import { AXES } from "./axes.js";
import { wireButtons } from "./buttons.js";
import { ChartView } from "./chart.js";
import { saveDrawing } from "./export.js";
import { liveDrawing, pointLoader } from "./loading.js";
import { NAMES, settingsOf, spelledSettings } from "./settings.js";
import { closeupLoader } from "./zoom.js";

export class Board {
  /** @param {PageData} data @param {string} url of points @param {import("./points.js").PointStore} store @param {Map<number, Set<number>>} skips */
  constructor(data, url, store, skips) {
    this.data = data;
    this.store = store;
    this.hidden = new Set(valuesOf("hide"));
    this.settings = settingsOf(location.search);
    /** @returns {Record<string, string>} */
    const more = () => ({
      ...(AXES[this.settings.axis].times ? { times: "true" } : {}),
      ...(this.settings.minus ? { minus: this.settings.minus } : {}),
    });
    this.url = url;
    this.more = more;
    /** Which runs are drawn, besides the groups that are shown. @type {(id: number) => boolean} */
    this.keeps = () => true;
    /** @type {import("./chart.js").Shared} */
    this.shared = {
      data,
      store,
      skips,
      settings: this.settings,
      load: pointLoader(url, store, more),
      lookAt: closeupLoader(url, more),
      groups: () => this.groups(),
      hiding: (series) =>
        this.data.groups
          .filter(
            ({ name, runs }) =>
              this.hidden.has(name) && runs.some(({ id }) => this.keeps(id) && store.get(id, series)?.steps.length),
          )
          .map(({ name }) => name),
      show: (names) => this.show(names),
      onView: () => this.remember(),
      onRange: (range) => this.setRange(range),
      onHover: (from, x) => this.charts.forEach((chart) => chart !== from && chart.drawn && chart.point(x)),
    };
    /** @type {ChartView[]} */
    this.charts = data.charts.flatMap((chart) => {
      const element = /** @type {HTMLElement | null} */ (document.querySelector(`[data-chart="${chart.id}"]`));
      return element ? [new ChartView(element, chart, this.shared)] : [];
    });
    for (const chart of this.charts) {
      chart.full = this.settings.full.has(chart.chart.id);
      chart.near = this.settings.range !== null;
      wireButtons(chart, { onChange: () => this.remember(), groups: () => this.groups() });
    }
    this.redraw = liveDrawing(this.charts);
    this.#wireTools();
    this.#wireLegend();
    this.#wireDrawings();
    document.addEventListener("themechange", () => this.draw());
  }

  /** The groups that are shown; a pinned one has the band and stays whatever else is hidden. @returns {Group[]} */
  groups() {
    const { pinned } = this.settings;
    const shown = this.data.groups.filter(({ name }) => !this.hidden.has(name) || name === pinned);
    const groups = shown.map((group) => ({ ...group, runs: group.runs.filter(({ id }) => this.keeps(id)) }));
    return pinned && groups.some(({ name }) => name === pinned)
      ? groups.map((group) => ({ ...group, baseline: group.name === pinned }))
      : groups;
  }

  /** Groups that were hidden are shown again. @param {string[]} names */
  show(names) {
    for (const name of names) this.hidden.delete(name);
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (
      document.querySelectorAll("[data-legend] [data-recipe]")
    ))
      button.setAttribute("aria-pressed", String(!this.hidden.has(button.dataset.recipe ?? "")));
    this.remember();
    this.draw();
  }

  draw() {
    for (const chart of this.charts) chart.draw();
  }

  /** The address always shows the same view after a reload, and to whoever gets the link. */
  remember() {
    remember("hide", [...this.hidden]);
    const spelled = spelledSettings(this.settings);
    for (const name of NAMES) remember(name, spelled[name]);
    if (this.whole) this.whole.disabled = !this.settings.range;
  }

  /** @param {[number, number] | null} range */
  setRange(range) {
    if (String(range) === String(this.settings.range)) return;
    this.settings.range = range;
    this.remember();
    for (const chart of this.charts) chart.look();
  }

  #wireTools() {
    const tools = document.querySelector("[data-chart-tools]");
    if (!(tools instanceof HTMLElement)) return;
    const axis = /** @type {HTMLSelectElement} */ (tools.querySelector("[data-axis]"));
    const smooth = /** @type {HTMLInputElement} */ (tools.querySelector("[data-smooth]"));
    const told = /** @type {HTMLOutputElement} */ (tools.querySelector("[data-smooth-told]"));
    this.whole = /** @type {HTMLButtonElement} */ (tools.querySelector("[data-whole]"));
    tools.hidden = false;
    axis.value = this.settings.axis;
    axis.addEventListener("change", () => {
      this.settings.axis = /** @type {import("./axes.js").AxisName} */ (axis.value);
      this.settings.range = null;
      this.remember();
      for (const chart of this.charts) AXES[this.settings.axis].times ? chart.reload() : chart.look();
    });
    const tell = () => (told.textContent = this.settings.smooth ? String(this.settings.smooth) : "off");
    smooth.value = String(this.settings.smooth);
    tell();
    smooth.addEventListener("input", () => {
      this.settings.smooth = Number(smooth.value);
      tell();
      this.remember();
      this.draw();
    });
    this.whole.disabled = !this.settings.range;
    this.whole.addEventListener("click", () => this.setRange(null));
    tools.querySelector("[data-pin]")?.addEventListener("change", (event) => {
      this.settings.pinned = /** @type {HTMLSelectElement} */ (event.target).value;
      this.remember();
      this.draw();
    });
    const pin = /** @type {HTMLSelectElement | null} */ (tools.querySelector("[data-pin]"));
    if (pin)
      pin.value = [...pin.options].some(({ value }) => value === this.settings.pinned) ? this.settings.pinned : "";
    const minus = /** @type {HTMLSelectElement | null} */ (tools.querySelector("[data-minus]"));
    if (minus && ![...minus.options].some(({ value }) => value === this.settings.minus)) this.settings.minus = "";
    if (!minus) this.settings.minus = "";
    else minus.value = this.settings.minus;
    minus?.addEventListener("change", () => this.#subtract(minus.value));
    this.#wireChoice(tools);
    this.#wireKeys(tools, () => {
      smooth.value = "0";
      smooth.dispatchEvent(new Event("input"));
    });
  }

  /** Show every curve less the mean of these runs; their points are read anew. @param {string} minus run numbers with commas, or nothing */
  #subtract(minus) {
    this.settings.minus = minus;
    this.settings.log.clear(); // what is logarithmic as a rule is not when it has signs
    this.store.runs.clear();
    this.remember();
    for (const chart of this.charts) chart.reload();
    document.dispatchEvent(new CustomEvent("subtracted"));
  }

  /** Keys for charts; none while somebody types or a dialog is open. @param {HTMLElement} tools @param {() => void} unsmooth */
  #wireKeys(tools, unsmooth) {
    const dialog = /** @type {HTMLDialogElement | null} */ (document.querySelector("[data-chart-dialog]"));
    tools.querySelector("[data-chart-keys]")?.addEventListener("click", () => dialog?.showModal());
    document.addEventListener("keydown", (event) => {
      const target = event.target instanceof Element ? event.target : null;
      if (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        dialog?.open ||
        target?.closest("input:not([type=range]):not([type=checkbox]), textarea, select")
      )
        return;
      const chart = target?.closest("[data-chart]"),
        near = chart ?? target?.closest("[data-chart-tools]");
      if (event.key === "?") dialog?.showModal();
      else if (event.key === "w" && near) this.setRange(null);
      else if (event.key === "0" && near) unsmooth();
      else if (chart && (event.key === "l" || event.key === "f"))
        /** @type {HTMLElement | null} */ (
          chart.querySelector(event.key === "l" ? "[data-log]" : "[data-screen]")
        )?.click();
      else return;
      event.preventDefault();
    });
  }

  /** Which further series are charted; the page is made anew with them. @param {HTMLElement} tools */
  #wireChoice(tools) {
    const form = /** @type {HTMLFormElement | null} */ (tools.querySelector("[data-series]"));
    form?.addEventListener("submit", (event) => {
      event.preventDefault();
      const names = [...form.querySelectorAll("input:checked")].map(
        (box) => /** @type {HTMLInputElement} */ (box).value,
      );
      const together = /** @type {SubmitEvent} */ (event).submitter?.getAttribute("value") === "together";
      remember("show", names.length && together ? [names.join(",")] : names);
      location.reload();
    });
  }

  #wireLegend() {
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (
      document.querySelectorAll("[data-legend] [data-recipe]")
    )) {
      const name = button.dataset.recipe ?? "";
      const show = () => button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
      button.addEventListener("click", () => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        show();
        this.remember();
        this.draw();
      });
      show();
    }
  }

  /** Drawings that the server made whole can be saved too. */
  #wireDrawings() {
    document.addEventListener("click", (event) => {
      const button = event.target instanceof Element ? event.target.closest("[data-save-drawing]") : null;
      const figure = button?.closest("[data-drawing]");
      const svg = figure?.querySelector("svg[role=img]");
      if (svg instanceof SVGElement) saveDrawing(svg, figure?.getAttribute("data-chart-name") ?? "");
    });
  }
}
