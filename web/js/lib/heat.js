/** The heat map of gradient exponents: the format's window is moved by a loss scale, the losses are asked of the server. */

import { remember, valuesOf } from "./address.js";

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** `2¹⁶`. @param {number} power */
export const powerText = (power) =>
  `2${power < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map((digit) => SUPERSCRIPT[Number(digit)]).join("")}`;

/**
 * An edge of the format over the whole picture when everything is multiplied by 2^power; empty outside of it. Pure.
 * @param {number} edge exponent @param {number} power @param {{high: number, cell: number, width: number, height: number}} picture
 */
export function edgePath(edge, power, { high, cell, width, height }) {
  const y = cell * (high + 1 - (edge - power));
  return y >= 0 && y <= height ? `M0 ${y}H${width}` : "";
}

/** A share that is not zero never reads as zero. @param {number} share */
export const shareText = (share) =>
  share === 0 ? "none" : share < 0.001 ? "below 0.1 %" : `${(100 * share).toFixed(1)} %`;

/** Let people move the window of every map below `root`. @param {ParentNode} root */
export function wireHeat(root) {
  for (const svg of /** @type {NodeListOf<SVGElement>} */ (root.querySelectorAll("[data-heat]"))) wire(svg);
}

/** @param {SVGElement} svg */
function wire(svg) {
  const control = /** @type {HTMLElement | null} */ (svg.closest("section")?.querySelector("[data-heat-control]"));
  if (!control) return;
  const input = /** @type {HTMLInputElement} */ (control.querySelector("input"));
  const output = /** @type {HTMLOutputElement} */ (control.querySelector("output"));
  const back = /** @type {HTMLButtonElement} */ (control.querySelector("[data-heat-recorded]"));
  const shares = /** @type {HTMLElement} */ (control.querySelector("[data-heat-shares]"));
  const edges = /** @type {SVGPathElement[]} */ ([...svg.querySelectorAll("[data-edge]")]);
  const recorded = edges.map((edge) => edge.getAttribute("d") ?? "");
  const { heat: run, format, power } = svg.dataset;
  const [high, cell, width, height] = [svg.dataset.high, svg.dataset.cell, svg.dataset.width, svg.dataset.height].map(
    Number,
  );
  let turn = 0;
  /** @param {number | null} at null: each step's own scale */
  const show = (at) => {
    edges.forEach((edge, index) =>
      edge.setAttribute(
        "d",
        at === null ? recorded[index] : edgePath(Number(edge.dataset.edge), at, { high, cell, width, height }),
      ),
    );
    output.textContent = at === null ? "each step's own" : powerText(at);
    back.disabled = at === null;
    remember("scale", at === null ? [] : [String(at)]);
    if (at === null) return void ((turn += 1), (shares.textContent = ""));
    input.value = String(at);
    ask(at);
  };
  /** @param {number} at */
  const ask = async (at) => {
    const mine = (turn += 1);
    await new Promise((resume) => setTimeout(resume, 120));
    if (mine !== turn) return;
    const answer = await fetch(
      `/api/v1/runs/${run}/whatif?${new URLSearchParams({ format: format ?? "fp16", scale: String(2 ** at) })}`,
    );
    if (mine !== turn) return;
    if (!answer.ok) return void (shares.textContent = "The losses could not be read: try again.");
    const { whole, step } = await answer.json();
    if (mine === turn)
      shares.textContent = `step ${step}: ${shareText(whole.underflow)} to zero, ${shareText(whole.subnormal)} with fewer bits, ${shareText(whole.overflow)} beyond the range`;
  };
  input.addEventListener("input", () => show(Number(input.value)));
  back.addEventListener("click", () => {
    input.value = power ?? "0";
    show(null);
  });
  control.hidden = false;
  const [given] = valuesOf("scale");
  show(given !== undefined && /^-?\d{1,2}$/.test(given) ? Math.min(60, Math.max(-30, Number(given))) : null);
}

/**
 * The maps of an experiment: one recipe's at a time, fetched when somebody gets there.
 * @param {HTMLElement} section with buttons `[data-heat-run]` and a place `[data-heat-place]`
 */
export function wireHeatChoice(section) {
  const buttons = /** @type {HTMLButtonElement[]} */ ([...section.querySelectorAll("[data-heat-run]")]);
  const place = /** @type {HTMLElement} */ (section.querySelector("[data-heat-place]"));
  /** @param {HTMLButtonElement} chosen */
  const show = async (chosen) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === chosen));
    const answer = await fetch(`/runs/${chosen.dataset.heatRun}/heat`, { headers: { Accept: "text/html" } });
    if (chosen.getAttribute("aria-pressed") !== "true") return;
    if (!answer.ok) return void (place.textContent = "The exponents could not be read: press the recipe again.");
    place.replaceChildren(...new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes);
    wireHeat(place);
  };
  const [given] = valuesOf("heat");
  for (const button of buttons) {
    button.addEventListener("click", () => {
      remember("heat", [button.dataset.recipe ?? ""]);
      show(button);
    });
  }
  const first = buttons.find((button) => button.dataset.recipe === given) ?? buttons[1] ?? buttons[0]; // the first one is the baseline
  if (!first) return;
  first.setAttribute("aria-pressed", "true");
  const observer = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      show(first);
    },
    { rootMargin: "300px" },
  );
  observer.observe(section);
}
