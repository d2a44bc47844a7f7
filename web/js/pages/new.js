/** The form of a new experiment: what it takes and how to write it in a terminal, as it is filled in. */

import { throttled } from "../lib/live.js";

/** @type {HTMLFormElement | null} */
const form = document.querySelector("[data-new]");
let asked = 0;

/** @param {HTMLFormElement} filled */
async function preview(filled) {
  const ticket = ++asked;
  const response = await fetch("/experiments/preview", { method: "POST", body: new FormData(filled) });
  if (!response.ok || ticket !== asked) return;
  const told = await response.json();
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (filled.querySelectorAll("[data-preview]")))
    place.textContent = told[place.dataset.preview ?? ""] ?? "";
}

if (form)
  form.addEventListener(
    "input",
    throttled(() => preview(form), 300),
  );
