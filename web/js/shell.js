/** What every page has: the theme switch and the copy buttons. */

const NEXT = { system: "dark", dark: "light", light: "system" };
const SIGN = { system: "◐", dark: "●", light: "○" };

function wireThemeSwitch(form) {
  const button = form.querySelector("button");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const theme = button.value;
    document.documentElement.dataset.theme = theme;
    document.cookie = `ampboard_theme=${theme}; max-age=31536000; path=/; samesite=lax`;
    button.value = NEXT[theme];
    button.title = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme}. Change it`);
    button.firstElementChild.textContent = SIGN[theme];
    document.dispatchEvent(new CustomEvent("themechange"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new CustomEvent("themechange")));
}

async function copy(button) {
  const text = document.getElementById(button.dataset.copy).textContent;
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = "Selected: press Ctrl-C";
  }
  setTimeout(() => (button.textContent = label), 2000);
}

const form = document.querySelector("[data-theme-switch]");
if (form) wireThemeSwitch(form);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});
