/** The form of a new experiment: what it takes and how to write it in a terminal, as it is filled in. */

import { throttled } from "../lib/live.js";

const form = document.querySelector("[data-new]");
let asked = 0;

async function preview() {
  const ticket = ++asked;
  const response = await fetch("/experiments/preview", { method: "POST", body: new URLSearchParams(new FormData(form)) });
  if (!response.ok || ticket !== asked) return;
  const told = await response.json();
  for (const place of form.querySelectorAll("[data-preview]")) place.textContent = told[place.dataset.preview] ?? "";
}

if (form) form.addEventListener("input", throttled(preview, 300));
