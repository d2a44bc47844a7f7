/** Figures that the server decided whole, traces and layout; only the theme's colours are added here. */

import { currentTheme } from "./chart.js";
import { loadPlotly } from "./loading.js";

/**
 * Draw each figure when it comes near the view, and anew when the theme changes.
 * @param {{id: string, data: any[], layout: Record<string, any>}[]} figures @param {import("../types").PageData} page
 */
export function drawFigures(figures, page) {
  for (const figure of figures) {
    const place = document.querySelector(`[data-figure="${figure.id}"]`);
    if (!place) continue;
    const draw = async () => {
      const Plotly = await loadPlotly(page.plotly);
      await Plotly.react(place, figure.data, coloured(figure.layout, page.themes[currentTheme()]), page.config);
    };
    const observer = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        draw();
        document.addEventListener("themechange", draw);
      },
      { rootMargin: "300px" },
    );
    observer.observe(place);
  }
}

/** @param {Record<string, any>} layout @param {Record<string, string>} colours */
export function coloured(layout, colours) {
  const made = structuredClone(layout);
  made.font.color = colours.text;
  for (const name of ["xaxis", "yaxis"])
    Object.assign(made[name], { gridcolor: colours.grid, linecolor: colours.line, tickcolor: colours.line });
  return made;
}
