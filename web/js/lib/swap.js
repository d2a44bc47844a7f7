/** Going to another view of the same list without loading the page: fetch it, swap its regions, keep history and focus. */

/** @type {(() => void)[]} */
const listeners = [];
let ticket = 0,
  going = 0;

/** Whether a key or button is down that will act when it is let go: what it is on must not be swapped away meanwhile. */
let pressed = false;
/** @type {(() => void)[]} */
let onRelease = [];
const LONGEST_PRESS_MS = 2000;

/** Watch presses; to be called once by a page that swaps regions by itself. */
export function watchPresses() {
  const release = () =>
    setTimeout(() => {
      // after the click that the release makes
      pressed = false;
      for (const go of onRelease.splice(0)) go();
    });
  addEventListener("keydown", (event) => void (event.key === " " && (pressed = true)), true);
  addEventListener("pointerdown", () => void (pressed = true), true);
  for (const end of ["keyup", "pointerup", "pointercancel", "blur"]) addEventListener(end, release, true);
}

/** Until nothing is pressed, but not for ever. @returns {Promise<void>} */
const released = () =>
  pressed ? new Promise((go) => (onRelease.push(go), setTimeout(go, LONGEST_PRESS_MS))) : Promise.resolve();

/** Call `work` after every swap. @param {() => void} work */
export const afterSwap = (work) => void listeners.push(work);

/** Whether a link leads to the list that is shown. @param {URL} url */
export const isSamePage = (url) => url.origin === location.origin && url.pathname === location.pathname;

/**
 * Show the view at `url`; the newest call wins.
 * @param {string | URL} url @param {{push?: boolean, quiet?: boolean}} options quiet: nothing is dimmed meanwhile
 */
export async function visit(url, { push = true, quiet = false } = {}) {
  if (quiet && going) return; // somebody goes elsewhere already
  const mine = quiet ? ticket : ++ticket;
  if (!quiet) going += 1;
  const busy = document.querySelector('[data-region="table"]');
  const dim = quiet ? undefined : setTimeout(() => busy?.setAttribute("aria-busy", "true"), 120);
  try {
    const response = await fetch(url, { headers: { Accept: "text/html" } });
    const html = await response.text();
    if (quiet) await released();
    if (mine !== ticket) return;
    if (!response.ok || response.redirected) return void location.assign(url);
    if (push) history.pushState(null, "", url);
    show(new DOMParser().parseFromString(html, "text/html"), quiet);
  } catch {
    if (mine === ticket && !quiet) location.assign(url);
  } finally {
    clearTimeout(dim);
    if (!quiet) going -= 1;
    document.querySelector('[data-region="table"]')?.removeAttribute("aria-busy");
  }
}

/** Swap every region and the filter's fields by those of another document. @param {Document} fresh @param {boolean} quiet a field somebody types in stays */
export function show(fresh, quiet) {
  const focused = place(document.activeElement);
  for (const held of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-region]"))) {
    const region = fresh.querySelector(`[data-region="${held.dataset.region}"]`);
    if (!region || region.innerHTML === held.innerHTML) continue;
    const open = new Map(
      [...held.querySelectorAll("details[data-menu]")].map((menu) => [
        /** @type {HTMLElement} */ (menu).dataset.menu,
        /** @type {HTMLDetailsElement} */ (menu).open,
      ]),
    );
    held.replaceChildren(...region.childNodes);
    for (const menu of /** @type {NodeListOf<HTMLDetailsElement>} */ (held.querySelectorAll("details[data-menu]")))
      menu.open = open.get(menu.dataset.menu) ?? false;
  }
  const forms = [document.querySelector("[data-filter]"), fresh.querySelector("[data-filter]")];
  if (forms[0] instanceof HTMLFormElement && forms[1] instanceof HTMLFormElement) takeFields(forms[0], forms[1], quiet);
  document.title = fresh.title;
  for (const work of listeners) work();
  if (focused && document.activeElement === document.body) focused()?.focus({ preventScroll: true });
}

/** How to find an element again after a swap. @param {Element | null} element @returns {(() => HTMLElement | null) | null} */
function place(element) {
  if (!(element instanceof HTMLElement) || element === document.body) return null;
  const row = element.closest("[data-row]");
  if (row) {
    const within = element.matches('input[name="id"]') ? 'input[name="id"]' : ".row-link";
    return () => document.getElementById(row.id)?.querySelector(within) ?? null;
  }
  const href = element.getAttribute("href"),
    name = element.getAttribute("name"),
    value = element.getAttribute("value");
  const region = element.closest("[data-region]");
  if (!region) return null;
  if (element.id) return () => document.getElementById(element.id); // the rows, where the skip link leads, and fields
  const within = `[data-region="${/** @type {HTMLElement} */ (region).dataset.region}"]`;
  if (name)
    return () => document.querySelector(`${within} [name="${CSS.escape(name)}"][value="${CSS.escape(value ?? "")}"]`);
  return href
    ? () =>
        [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(`${within} a`))].find(
          (link) => link.textContent?.trim().slice(0, 8) === element.textContent?.trim().slice(0, 8),
        ) ?? null
    : null;
}

/** The filter shows what the address says. @param {HTMLFormElement} held @param {HTMLFormElement} fresh @param {boolean} quiet */
function takeFields(held, fresh, quiet) {
  for (const hidden of held.querySelectorAll('input[type="hidden"]')) hidden.remove();
  held.append(...fresh.querySelectorAll('input[type="hidden"]'));
  for (const field of /** @type {NodeListOf<HTMLSelectElement | HTMLInputElement>} */ (
    held.querySelectorAll("select, input:not([type=hidden])")
  )) {
    const other = /** @type {HTMLSelectElement | HTMLInputElement | null} */ (
      fresh.querySelector(`[name="${field.name}"]`)
    );
    if (other && !(quiet && field === document.activeElement)) field.value = other.value;
  }
  if (quiet) return;
  const error = held.querySelector("[data-search-error]"),
    told = fresh.querySelector("[data-search-error]");
  const marks = held.querySelector("[data-marks]"),
    marked = fresh.querySelector("[data-marks]");
  if (error && told && marks && marked) {
    error.replaceChildren(...told.childNodes);
    error.toggleAttribute("hidden", told.hasAttribute("hidden"));
    marks.replaceChildren(...marked.childNodes);
  }
  const box = held.querySelector("#q"),
    box2 = fresh.querySelector("#q");
  if (box && box2)
    box2.hasAttribute("aria-invalid") ? box.setAttribute("aria-invalid", "true") : box.removeAttribute("aria-invalid");
}

/** The address that a GET form asks for, without its empty fields. @param {HTMLFormElement} form */
export function addressOf(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (typeof value === "string" && value) query.append(name, value);
  return `${new URL(form.action).pathname}${query.size ? `?${query}` : ""}`;
}
