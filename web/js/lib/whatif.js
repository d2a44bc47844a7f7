/** The what-if explorer: where a format's window lies at a scale, and shares in words. Pure but for `explore`. */

/**
 * @typedef {{cell: number, low: number, high: number, windows: Record<string, [number, number, number]>}} Picture
 * `windows`: by format the exponents of half its smallest number, of its smallest normal one and of its largest
 */

/**
 * The window's place in the picture: a scale of 2^power moves it down by as many exponents; what is outside is cut.
 * @param {Picture} picture @param {string} format @param {number} power
 */
export function windowBox({ cell, low, high, windows }, format, power) {
  const [first, , last] = windows[format];
  const left = Math.max(low, Math.min(high + 1, first - power));
  const right = Math.max(left, Math.min(high + 1, last - power + 1));
  return { x: cell * (left - low), width: cell * (right - left) };
}

/** A share that is not zero never reads as zero. @param {number} share */
export function shareText(share) {
  if (share === 0) return "0";
  return share < 1e-4 ? "< 0.01 %" : `${(100 * share).toFixed(2)} %`;
}

/**
 * How far predicted shares were from those another run measured, in words.
 * @param {{pairs: number, mean_error: number, largest_error: number} | null} prediction
 */
export function errorText(prediction) {
  if (!prediction || prediction.pairs === 0) return "That run measured no underflow at the steps recorded here.";
  const off = `${shareText(prediction.mean_error)} off on average, ${shareText(prediction.largest_error)} at most`;
  return `Predicted shares that become zero: ${off} (${prediction.pairs} modules and steps).`;
}

/**
 * Wire the explorer of a page: the window moves at once, the shares follow from REST.
 * @param {HTMLElement} section @param {Picture} picture @param {number} run
 */
export function explore(section, picture, run) {
  const format = /** @type {HTMLSelectElement} */ (section.querySelector("[data-whatif-format]"));
  const slider = /** @type {HTMLInputElement} */ (section.querySelector("[data-whatif-power]"));
  const scale = /** @type {HTMLElement} */ (section.querySelector("[data-whatif-scale]"));
  const box = /** @type {SVGRectElement} */ (section.querySelector("[data-whatif-window]"));
  const rows = /** @type {HTMLElement} */ (section.querySelector("[data-whatif-rows]"));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let asked = 0;
  const move = () => {
    const power = Number(slider.value);
    const { x, width } = windowBox(picture, format.value, power);
    scale.textContent = `2^${power}`;
    slider.setAttribute("aria-valuetext", `2 to the power ${power}`);
    box.setAttribute("x", String(x));
    box.setAttribute("width", String(width));
  };
  const ask = async () => {
    const mine = (asked += 1);
    const query = new URLSearchParams({ format: format.value, scale: String(2 ** Number(slider.value)) });
    const response = await fetch(`/api/v1/runs/${run}/whatif?${query}`);
    if (!response.ok || mine !== asked) return;
    const answer = await response.json();
    const shares = [answer.whole, ...answer.modules];
    [...rows.children].forEach((row, index) => {
      const [zero, beyond] = row.querySelectorAll("td");
      zero.textContent = shareText(shares[index].underflow);
      beyond.textContent = shareText(shares[index].overflow);
    });
  };
  const changed = () => {
    move();
    clearTimeout(timer);
    timer = setTimeout(ask, 150);
  };
  const against = /** @type {HTMLSelectElement | null} */ (section.querySelector("[data-whatif-against]"));
  const told = /** @type {HTMLElement | null} */ (section.querySelector("[data-whatif-error]"));
  const check = async () => {
    if (!against || !told) return;
    const other = against.value;
    told.textContent = "";
    if (!other) return;
    const response = await fetch(`/api/v1/runs/${run}/whatif?${new URLSearchParams({ against: other })}`);
    if (other !== against.value) return;
    told.textContent = response.ok ? errorText((await response.json()).prediction) : "That run cannot be read.";
  };
  against?.addEventListener("change", check);
  slider.addEventListener("input", changed);
  format.addEventListener("change", changed);
  move();
}
