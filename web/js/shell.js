/** What every page has: the theme switch and the copy buttons. */

/** @type {Record<string, string>} */
const NEXT = { system: "dark", dark: "light", light: "system" };
/** @type {Record<string, string>} */
const SIGN = { system: "◐", dark: "●", light: "○" };

/** @param {HTMLFormElement} form */
function wireThemeSwitch(form) {
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  const sign = /** @type {HTMLElement} */ (button.firstElementChild);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const theme = button.value;
    document.documentElement.dataset.theme = theme;
    document.cookie = `ampboard_theme=${theme}; max-age=31536000; path=/; samesite=lax`;
    button.value = NEXT[theme];
    button.title = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme}. Change it`);
    sign.textContent = SIGN[theme];
    document.dispatchEvent(new CustomEvent("themechange"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    document.dispatchEvent(new CustomEvent("themechange")),
  );
}

/** @param {HTMLElement} button */
async function copy(button) {
  const source = document.getElementById(button.dataset.copy ?? "");
  if (!source) return;
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(source.textContent ?? "");
    button.textContent = "Copied";
  } catch {
    getSelection()?.selectAllChildren(source);
    button.textContent = "Selected: press Ctrl-C";
  }
  setTimeout(() => (button.textContent = label), 2000);
}

/** @type {HTMLFormElement | null} */
const form = document.querySelector("[data-theme-switch]");
if (form) wireThemeSwitch(form);
document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-copy]") : null;
  if (button instanceof HTMLElement) copy(button);
});

// An explanation goes away by Esc, and comes again when its word is left and found anew.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const term of document.querySelectorAll(".term:hover, .term:focus-within")) {
    term.classList.add("closed");
    const open = () => term.classList.remove("closed");
    term.addEventListener("mouseleave", open, { once: true });
    term.addEventListener("focusout", open, { once: true });
  }
});

export {};
