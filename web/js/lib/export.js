/** Charts as files: CSV of what is drawn, and pictures. */

/** @typedef {import("../types").Group} Group @typedef {import("../types").Source} Source */

/** A field that no program reads as a formula or breaks at. @param {string | number} value */
export function field(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * The points of a chart, one in a row; raw, whatever smoothing shows. Pure.
 * @param {string[]} names series @param {Group[]} groups @param {Source} store
 * @param {string} [minus] the pinned runs, if the points are differences from them
 */
export function csvOf(names, groups, store, minus = "") {
  const rows = [`series,recipe,run,label,step,${["value", minusWords(minus)].filter(Boolean).join(" ")},unix_time`];
  for (const name of names) {
    for (const group of groups) {
      for (const run of group.runs) {
        const points = store.get(run.id, name);
        points?.steps.forEach((step, index) =>
          rows.push(
            [name, group.name, run.id, run.label, step, spelled(points.values[index]), points.times?.[index] ?? ""]
              .map(field)
              .join(","),
          ),
        );
      }
    }
  }
  return `${rows.join("\r\n")}\r\n`;
}

/** As REST spells what JSON lacks. @param {number} value */
const spelled = (value) =>
  Number.isFinite(value) ? value : Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";

/** What was taken from every value, in words; nothing without pinned runs. Pure. @param {string} minus run numbers with commas */
export function minusWords(minus) {
  const ids = minus.split(",").filter(Boolean);
  return ids.length > 1 ? `minus mean of runs ${ids.join(" ")}` : ids.length ? `minus run ${ids[0]}` : "";
}

/** A name that every file system takes. @param {string} title */
export const fileName = (title) =>
  title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "") || "chart";

/** @param {string} name with ending @param {string} address */
function save(name, address) {
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
}

/** @param {string} name @param {string} text @param {string} type */
export function saveText(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  save(name, address);
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A drawing of the page as a file of its own: the colours of its styles are written into it. @param {SVGElement} svg @param {string} title */
export function saveDrawing(svg, title) {
  const copy = /** @type {SVGElement} */ (svg.cloneNode(true));
  const parts = [svg, ...svg.querySelectorAll("*")],
    copies = [copy, ...copy.querySelectorAll("*")];
  parts.forEach((part, index) => {
    const style = getComputedStyle(part);
    for (const name of [
      "fill",
      "stroke",
      "stroke-width",
      "stroke-dasharray",
      "opacity",
      "font-family",
      "font-size",
      "font-weight",
    ])
      copies[index].setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  saveText(`${fileName(title)}.svg`, new XMLSerializer().serializeToString(copy), "image/svg+xml");
}
