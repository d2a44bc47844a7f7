/** The search box: suggestions for the word at the cursor, and wrong words marked while somebody types. */

import { throttled } from "./live.js";

/** @typedef {{text: string, detail: string}} Item */
/** @typedef {{start: number, end: number, items: Item[], faults: {start: number, end: number, rule: string, remedy: string}[]}} Answer */

/**
 * The query with a suggestion in the place of characters [start, end), and where the cursor goes: behind a value comes a
 * space, behind a field or an operator its value. Pure.
 * @param {string} query @param {{start: number, end: number}} place @param {string} text
 */
export function accepted(query, { start, end }, text) {
  const more = /[:=<>]$/.test(text) ? "" : " ";
  const rest = query.slice(end);
  const value = query.slice(0, start) + text + (rest.startsWith(" ") ? "" : more) + rest;
  return { value, at: start + text.length + more.length };
}

/**
 * The query cut into plain and wrong pieces. Pure.
 * @param {string} query @param {{start: number, end: number}[]} faults @returns {[string, boolean][]}
 */
export function pieces(query, faults) {
  /** @type {[string, boolean][]} */
  const found = [];
  let at = 0;
  for (const { start, end } of faults) {
    found.push([query.slice(at, start), false], [query.slice(start, end), true]);
    at = end;
  }
  found.push([query.slice(at), false]);
  return found.filter(([text]) => text);
}

export class Completion {
  /** @param {HTMLElement} box @param {() => void} onSubmit */
  constructor(box, onSubmit) {
    this.page = box.dataset.page ?? "runs";
    this.onSubmit = onSubmit;
    this.input = /** @type {HTMLInputElement} */ (box.querySelector("input"));
    this.marks = /** @type {HTMLElement} */ (box.querySelector("[data-marks]"));
    this.error = /** @type {HTMLElement} */ (document.querySelector("[data-search-error]"));
    this.list = document.createElement("ul");
    this.list.className = "completions";
    this.list.id = "q-completions";
    this.list.hidden = true;
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Suggestions");
    box.append(this.list);
    this.input.setAttribute("role", "combobox");
    this.input.setAttribute("aria-autocomplete", "list");
    this.input.setAttribute("aria-controls", this.list.id);
    this.input.setAttribute("aria-expanded", "false");
    this.chosen = -1;
    /** @type {Answer | null} */
    this.answer = null;
    /** What was in the box when the list was closed: an answer for it comes too late. @type {string | null} */
    this.closedFor = null;
    const later = throttled(() => this.#ask(), 60);
    const ask = () => ((this.closedFor = null), later());
    this.input.addEventListener("input", () => (this.#choose(-1), this.#mark([]), ask())); // who types on has not chosen
    this.input.addEventListener("focus", ask);
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 120));
    this.input.addEventListener("scroll", () => (this.marks.scrollLeft = this.input.scrollLeft));
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault();
      const item = event.target instanceof Element ? event.target.closest("li") : null;
      if (item) this.#accept([...this.list.children].indexOf(item));
    });
  }

  get isOpen() {
    return !this.list.hidden;
  }

  close() {
    this.closedFor = this.input.value;
    this.list.hidden = true;
    this.chosen = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  async #ask() {
    if (this.input.value === this.closedFor) return;
    const query = this.input.value,
      at = this.input.selectionStart ?? query.length;
    const response = await fetch(
      `/api/v1/search/suggestions?${new URLSearchParams({ page: this.page, q: query, at: String(at) })}`,
    );
    if (!response.ok || query !== this.input.value || query === this.closedFor || document.activeElement !== this.input)
      return;
    this.answer = /** @type {Answer} */ (await response.json());
    this.#show();
    this.#mark(this.answer.faults.filter(({ start, end }) => at < start || at > end || at < query.length));
  }

  #show() {
    const items = this.answer?.items ?? [];
    const held = this.list.children[this.chosen]?.querySelector("b")?.textContent; // an answer that comes late loses no choice
    this.list.replaceChildren(
      ...items.map(({ text, detail }, index) => {
        const item = document.createElement("li"),
          name = document.createElement("b"),
          help = document.createElement("span");
        item.id = `q-completion-${index}`;
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", "false");
        name.textContent = text;
        help.textContent = detail;
        item.append(name, help);
        return item;
      }),
    );
    this.chosen = -1;
    this.list.hidden = items.length === 0;
    this.input.setAttribute("aria-expanded", String(items.length > 0));
    this.input.removeAttribute("aria-activedescendant");
    const again = held === undefined ? -1 : items.findIndex(({ text }) => text === held);
    if (again >= 0) this.#choose(again);
  }

  /** @param {Answer["faults"]} faults */
  #mark(faults) {
    this.marks.replaceChildren(
      ...pieces(this.input.value, faults).map(([text, wrong]) => {
        const piece = document.createElement(wrong ? "mark" : "span");
        piece.textContent = text;
        return piece;
      }),
    );
    this.error.replaceChildren(
      ...faults.map(({ start, end, rule, remedy }) => {
        const line = document.createElement("span"),
          word = document.createElement("b");
        word.className = "mono";
        word.textContent = this.input.value.slice(start, end);
        line.append(word, `: ${rule}: ${remedy}`);
        return line;
      }),
    );
    this.error.hidden = faults.length === 0;
    faults.length ? this.input.setAttribute("aria-invalid", "true") : this.input.removeAttribute("aria-invalid");
    this.marks.scrollLeft = this.input.scrollLeft;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.isOpen) {
      event.preventDefault();
      this.#choose(
        (this.chosen + step + this.list.children.length + (this.chosen < 0 && step < 0 ? 1 : 0)) %
          this.list.children.length,
      );
    } else if ((event.key === "Enter" || event.key === "Tab") && this.isOpen && this.chosen >= 0) {
      event.preventDefault();
      this.#accept(this.chosen);
    } else if (event.key === "Escape" && this.isOpen) {
      event.preventDefault();
      event.stopPropagation();
      this.close();
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.close();
      this.onSubmit();
    }
  }

  /** @param {number} index */
  #choose(index) {
    this.chosen = index;
    [...this.list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === index)));
    if (index < 0) return this.input.removeAttribute("aria-activedescendant");
    this.list.children[index].scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", `q-completion-${index}`);
  }

  /** @param {number} index */
  #accept(index) {
    if (!this.answer) return;
    const { value, at } = accepted(this.input.value, this.answer, this.answer.items[index].text);
    this.input.value = value;
    this.input.setSelectionRange(at, at);
    this.close();
    this.input.focus();
    this.#mark([]);
    this.closedFor = null;
    this.#ask();
  }
}
