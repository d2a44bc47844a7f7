/** The table of experiments: filters apply as they are chosen, rows follow the store. */

import { Live, refreshRegions, throttled } from "../lib/live.js";

const form = /** @type {HTMLFormElement} */ (document.querySelector("[data-filter]"));
for (const select of form.querySelectorAll("select")) select.addEventListener("change", () => form.requestSubmit());
form.addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) if (!value) formData.delete(name);
});

const swap = throttled(() => refreshRegions(), 1500);
new Live("/changes", { change: () => swap() });
