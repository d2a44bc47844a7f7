/**
 * Curves shown as differences go on live: what the stream brings is not a difference yet, so the server is asked for the
 * steps after those that are held, and for nothing else.
 */

import { throttled } from "./live.js";

const EVERY_MS = 400;

/**
 * Where to go on: the first step that may be missing of any of the series; undefined when one has no point yet. Pure.
 * @param {import("../types").Source} source @param {Iterable<number>} runs @param {Iterable<string>} names
 */
export function nextStep(source, runs, names) {
  let from = Infinity;
  for (const run of runs) {
    for (const name of names) {
      const last = source.get(run, name)?.steps.at(-1);
      if (last === undefined) return undefined;
      from = Math.min(from, last + 1);
    }
  }
  return Number.isFinite(from) ? from : undefined;
}

/**
 * @param {import("./board.js").Board} board its charts show differences @param {number[]} ids all compared runs
 * @returns {(run: number, names: string[]) => void} to be called with what a run wrote
 */
export function differenceTail(board, ids) {
  /** @type {Set<number>} */
  let runs = new Set();
  /** @type {Set<string>} */
  let names = new Set();
  const ask = throttled(async () => {
    const { minus } = board.settings,
      asked = { runs, names };
    [runs, names] = [new Set(), new Set()];
    if (!minus || !asked.runs.size) return;
    const pinned = minus.split(",").map(Number);
    const touched = pinned.some((id) => asked.runs.has(id)) ? ids : [...asked.runs]; // a pinned run moves every difference on
    const from = nextStep(board.store, touched, asked.names);
    const query = new URLSearchParams({
      names: [...asked.names].join(","),
      max_points: String(board.store.limit),
      ...(from === undefined ? {} : { from: String(from) }),
      ...board.more(),
    });
    try {
      const response = await fetch(`/compare/${touched.join(",")}/points?${query}`);
      if (!response.ok) throw new Error(String(response.status));
      const told = await response.json();
      if (board.settings.minus !== minus) return;
      for (const { run_id: run, attempt, series } of told.runs)
        for (const [name, points] of /** @type {[string, import("../types").Window][]} */ (Object.entries(series)))
          board.store.append(run, name, points, attempt);
      board.redraw([...asked.names]);
    } catch {
      for (const run of asked.runs) runs.add(run); // the next points bring these along
      for (const name of asked.names) names.add(name);
    }
  }, EVERY_MS);
  return (run, written) => {
    runs.add(run);
    for (const name of written) names.add(name);
    ask();
  };
}
