/** Rows of a list: which are selected, and moving among them by keys. The selection outlives a swap of the table. */

/** @param {EventTarget | null} target */
const isTyping = (target) =>
  target instanceof HTMLElement && target.matches("input:not([type=checkbox]), select, textarea, [contenteditable]");

export class Rows {
  /** @param {HTMLElement} root @param {{search: HTMLInputElement | null, help: () => void}} around */
  constructor(root, around) {
    this.root = root;
    this.around = around;
    /** @type {Set<string>} */
    this.picked = new Set();
    /** @type {HTMLInputElement | null} */
    this.last = null;
    root.addEventListener("change", (event) => this.#changed(event));
    root.addEventListener("click", (event) => this.#clicked(event));
    document.addEventListener("keydown", (event) => this.#key(event));
    this.refresh();
  }

  /** @returns {HTMLElement[]} */
  get rows() {
    return [.../** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll("[data-row]"))].filter(
      (row) => !row.hidden,
    );
  }

  /** @returns {HTMLInputElement[]} */
  get boxes() {
    return [.../** @type {NodeListOf<HTMLInputElement>} */ (this.root.querySelectorAll('[data-row] input[name="id"]'))];
  }

  /** Bring checkboxes, marks and the bar in line with the selection, after a swap too. Rows that are gone drop out. */
  refresh() {
    const boxes = this.boxes;
    const here = new Set(boxes.map((box) => box.value));
    for (const id of this.picked) if (!here.has(id)) this.picked.delete(id);
    for (const box of boxes) {
      box.checked = this.picked.has(box.value);
      box.closest("tr")?.classList.toggle("picked", box.checked);
    }
    const all = this.root.querySelector("[data-all]");
    if (all instanceof HTMLInputElement) {
      all.hidden = false;
      all.checked = boxes.length > 0 && this.picked.size === here.size;
      all.indeterminate = this.picked.size > 0 && !all.checked;
    }
    const bar = this.root.querySelector("[data-bulk]"),
      count = bar?.querySelector("[data-count]");
    if (!bar || !count) return;
    const words = this.picked.size ? `${this.picked.size} selected` : "Nothing selected";
    if (count.textContent !== words) count.textContent = words;
    bar.toggleAttribute("data-active", this.picked.size > 0);
    for (const control of /** @type {NodeListOf<HTMLButtonElement>} */ (bar.querySelectorAll("button")))
      control.disabled = !this.picked.size;
  }

  clear() {
    this.picked.clear();
    this.refresh();
  }

  /** @param {Event} event */
  #changed(event) {
    const box = event.target;
    if (!(box instanceof HTMLInputElement)) return;
    if (box.matches("[data-all]"))
      for (const other of this.boxes) box.checked ? this.picked.add(other.value) : this.picked.delete(other.value);
    else if (box.name === "id") box.checked ? this.picked.add(box.value) : this.picked.delete(box.value);
    else return;
    this.refresh();
  }

  /** With Shift everything between the last box and this one follows. @param {MouseEvent} event */
  #clicked(event) {
    const box = event.target;
    if (!(box instanceof HTMLInputElement) || box.name !== "id") return;
    if (event.shiftKey) this.#through(box, box.checked);
    this.last = box;
  }

  /** @param {HTMLInputElement} box @param {boolean} on */
  #through(box, on) {
    const boxes = this.boxes,
      ends = [boxes.indexOf(box), this.last ? boxes.findIndex((other) => other.value === this.last?.value) : -1];
    if (ends[1] < 0) return;
    for (const other of boxes.slice(Math.min(...ends), Math.max(...ends) + 1))
      on ? this.picked.add(other.value) : this.picked.delete(other.value);
    this.refresh();
  }

  /** @param {number} by */
  #move(by) {
    const rows = this.rows;
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
    /** @type {HTMLElement | null} */
    const link = next.querySelector(".row-link");
    link?.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]"))
      return;
    if (isTyping(event.target)) {
      if (event.key === "Escape" && event.target === this.around.search) this.around.search?.blur();
      return;
    }
    const inTable = this.root.contains(document.activeElement) || document.activeElement === document.body;
    const arrows =
      inTable && !(document.activeElement instanceof HTMLElement && document.activeElement.matches('[role="group"]'));
    if (event.key === "/" && this.around.search) this.around.search.focus();
    else if (event.key === "?") this.around.help();
    else if (event.key === "j" || (event.key === "ArrowDown" && arrows && this.#inRow())) this.#move(1);
    else if (event.key === "k" || (event.key === "ArrowUp" && arrows && this.#inRow())) this.#move(-1);
    else if (event.key.toLowerCase() === "x" && this.#inRow()) this.#pick(event.shiftKey);
    else if (event.key === "Escape" && this.picked.size) this.clear();
    else return;
    event.preventDefault();
  }

  #inRow() {
    return Boolean(document.activeElement?.closest("[data-row]"));
  }

  /** @param {boolean} through */
  #pick(through) {
    const box = document.activeElement?.closest("[data-row]")?.querySelector('input[name="id"]');
    if (!(box instanceof HTMLInputElement)) return;
    const on = !this.picked.has(box.value);
    on ? this.picked.add(box.value) : this.picked.delete(box.value);
    if (through) this.#through(box, on);
    this.last = box;
    this.refresh();
  }
}
