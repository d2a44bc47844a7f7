/** The buttons of one chart: log scale, full screen, and saving it as a picture or a table. */

import { currentTheme } from "./chart.js";
import { csvOf, fileName, minusWords, saveText } from "./export.js";
import { loadPlotly } from "./loading.js";
import { lookingAt } from "./zoom.js";

/**
 * @param {import("./chart.js").ChartView} view
 * @param {{onChange: () => void, groups: () => import("../types").Group[]}} around onChange: what the address says has changed
 */
export function wireButtons(view, { onChange, groups }) {
  const {
      element,
      chart,
      settings: { log },
    } = view,
    { store } = view.shared;
  const button = (/** @type {string} */ name) =>
    /** @type {HTMLButtonElement | null} */ (element.querySelector(`[data-${name}]`));
  for (const hidden of element.querySelectorAll("[data-tools]")) /** @type {HTMLElement} */ (hidden).hidden = false;
  const toggle = button("log");
  const show = () => toggle?.setAttribute("aria-pressed", String(view.isLog()));
  document.addEventListener("subtracted", show);
  show();
  toggle?.addEventListener("click", () => {
    if (!log.delete(chart.id)) log.add(chart.id);
    show();
    onChange();
    view.draw();
  });
  button("screen")?.addEventListener("click", () =>
    document.fullscreenElement ? document.exitFullscreen() : element.requestFullscreen?.(),
  );
  button("csv")?.addEventListener("click", () =>
    saveText(
      `${fileName(titleOf(view))}.csv`,
      csvOf([chart.series, ...(chart.also ?? [])], groups(), lookingAt(store, view.closeup), view.settings.minus),
      "text/csv",
    ),
  );
  for (const format of ["png", "svg"])
    button(format)?.addEventListener("click", () => view.drawn && picture(view, format));
}

/** The chart's title, and what its curves are differences from. @param {import("./chart.js").ChartView} view */
const titleOf = ({ chart, settings }) => [chart.title, minusWords(settings.minus)].filter(Boolean).join(" ");

/** @param {import("./chart.js").ChartView} view @param {string} format */
async function picture(view, format) {
  const { plot, shared } = view,
    title = titleOf(view);
  const Plotly = await loadPlotly(shared.data.plotly);
  const layout = {
    .../** @type {any} */ (plot).layout,
    paper_bgcolor: shared.data.themes[currentTheme()].hover,
    title: { text: title, font: { size: 14 } },
    margin: { l: 64, r: 16, t: 40, b: 48 },
  };
  await Plotly.downloadImage(
    { data: /** @type {any} */ (plot).data, layout },
    { format, width: 960, height: 540, scale: format === "png" ? 2 : 1, filename: fileName(title) },
  );
}
