/** Short messages at the edge of the page, with one thing to do about them. */

const SHOWN_MS = 12_000;

/** @returns {HTMLElement} */
function corner() {
  const held = document.querySelector(".toasts");
  if (held instanceof HTMLElement) return held;
  const made = document.createElement("div");
  made.className = "toasts";
  made.setAttribute("role", "status");
  document.body.append(made);
  return made;
}

/**
 * @param {string} text
 * @param {{label: string, act: () => void} | null} [remedy]
 */
export function toast(text, remedy = null) {
  const box = document.createElement("div");
  box.className = "toast";
  const words = document.createElement("span");
  words.textContent = text;
  box.append(words);
  if (remedy) box.append(button(remedy.label, () => (box.remove(), remedy.act())));
  box.append(button("Close", () => box.remove(), "✕"));
  corner().append(box);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const start = () => (timer = setTimeout(() => box.remove(), SHOWN_MS));
  for (const name of ["pointerenter", "focusin"]) box.addEventListener(name, () => clearTimeout(timer));
  for (const name of ["pointerleave", "focusout"]) box.addEventListener(name, start);
  start();
}

/** @param {string} label @param {() => void} act @param {string} [sign] */
function button(label, act, sign) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "button small";
  made.textContent = sign ?? label;
  if (sign) made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}
