/** What charts wait for: Plotly, their points, and their turn to be drawn. */

import { throttled } from "./live.js";

/** @type {Promise<any> | null} */
let loading = null;

/** Load Plotly once, after the text is there. @param {string} url */
export function loadPlotly(url) {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    Object.assign(script, {
      src: url,
      async: true,
      onload: () => resolve(window.Plotly),
      onerror: () => reject(new Error("Plotly could not be loaded")),
    });
    document.head.append(script);
  });
  return loading;
}

/** Let the browser paint and answer before more is done. @returns {Promise<void>} */
export const pause = () => new Promise((resume) => setTimeout(resume));

let last = Promise.resolve();

/** Do `work` after what others asked for, each in a task of its own: many charts never draw in one breath. @param {() => Promise<void>} work */
export function inTurn(work) {
  const mine = last.then(pause).then(work);
  last = mine.catch(() => {}); // whoever asked hears of it; the next one goes on
  return mine;
}

/**
 * Fetches the points of charts when they come into view, those that come together in one request; points that came live
 * meanwhile stay.
 * @param {string} url @param {import("./points.js").PointStore} store @param {() => Record<string, string>} more what else to ask for
 * @returns {(names: string[]) => Promise<void>}
 */
export function pointLoader(url, store, more = () => ({})) {
  /** @type {Set<string>} */
  let wanted = new Set();
  /** @type {Promise<void> | null} */
  let coming = null;
  const fetchWanted = async () => {
    await new Promise((resume) => setTimeout(resume));
    const names = [...wanted];
    wanted = new Set();
    coming = null;
    const asked = more();
    const response = await fetch(
      `${url}?${new URLSearchParams({ names: names.join(","), max_points: String(store.limit), ...asked })}`,
    );
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    if (more().minus !== asked.minus) return; // of another view than the one that is shown now: its charts ask again
    for (const { run_id: run, attempt, series } of (await response.json()).runs) {
      for (const [name, points] of /** @type {[string, import("../types").Window][]} */ (Object.entries(series)))
        store.merge(run, name, points, attempt);
    }
  };
  return (names) => {
    for (const name of names) wanted.add(name);
    coming ??= fetchWanted();
    return coming;
  };
}

/**
 * Redraws the charts of the series that changed: at once when drawing is cheap, less often the longer it takes, so that
 * a page with many runs stays responsive.
 * @param {import("./chart.js").ChartView[]} charts
 * @returns {(names: string[]) => void}
 */
export function liveDrawing(charts) {
  /** @type {Set<string>} */
  const touched = new Set();
  let interval = 250;
  const draw = throttled(
    async () => {
      const begin = performance.now();
      const due = charts.filter(({ chart }) => chart.names.some((name) => touched.has(name)));
      touched.clear();
      await Promise.all(due.map((chart) => chart.draw()));
      interval = Math.min(1500, Math.max(250, 4 * (performance.now() - begin)));
    },
    () => interval,
  );
  return (names) => {
    for (const name of names) touched.add(name);
    draw();
  };
}
