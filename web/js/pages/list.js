/** The lists of experiments and runs: views without reloading, completion, keys, bulk actions with undo, live rows. */

import { Completion } from "../lib/completion.js";
import { Live, throttled } from "../lib/live.js";
import { Rows } from "../lib/rows.js";
import { addressOf, afterSwap, isSamePage, visit, watchPresses } from "../lib/swap.js";
import { toast } from "../lib/toast.js";

const filter = /** @type {HTMLFormElement} */ (document.querySelector("[data-filter]"));
const form = /** @type {HTMLFormElement} */ (document.querySelector("[data-rows-form]"));
const dialog = /** @type {HTMLDialogElement | null} */ (document.querySelector("[data-keys]"));
const search = /** @type {HTMLInputElement} */ (document.querySelector("#q"));
const noun = /** @type {HTMLElement} */ (document.querySelector("[data-noun]")).dataset.noun ?? "runs";
const DONE = /** @type {Record<string, string>} */ ({
  cancel: "cancelled",
  retry: "queued again",
  tag: "tagged",
  untag: "without the tag",
  archive: "archived",
  unarchive: "back in the list",
  delete: "deleted",
  restore: "back",
});
const UNDO = /** @type {Record<string, string>} */ ({
  delete: "restore",
  archive: "unarchive",
  unarchive: "archive",
  tag: "untag",
});

const rows = new Rows(form, { search, help: () => dialog?.showModal() });
const apply = () => visit(addressOf(filter));
const completion = new Completion(/** @type {HTMLElement} */ (document.querySelector("[data-search]")), apply);
/** The address without what a form without scripts reported. */
const here = () => {
  const url = new URL(location.href);
  for (const name of ["did", "ids", "refused"]) url.searchParams.delete(name);
  return url;
};
const refresh = () => visit(here(), { push: false, quiet: true });

filter.addEventListener("submit", (event) => {
  event.preventDefault();
  completion.close();
  apply();
});
for (const select of filter.querySelectorAll("select")) select.addEventListener("change", apply);
search.addEventListener("search", () => search.value === "" && apply());
addEventListener("popstate", () => visit(location.href, { push: false }));

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const link = target?.closest("a[data-swap]");
  if (
    link instanceof HTMLAnchorElement &&
    !event.ctrlKey &&
    !event.metaKey &&
    !event.shiftKey &&
    event.button === 0 &&
    isSamePage(new URL(link.href))
  ) {
    event.preventDefault();
    visit(link.href);
  } else if (target?.closest("[data-keys-help]")) dialog?.showModal();
  else if (target?.closest("[data-fold]")) fold(/** @type {HTMLElement} */ (target.closest("[data-fold]")));
  for (const menu of /** @type {NodeListOf<HTMLDetailsElement>} */ (
    document.querySelectorAll("details[data-menu][open]")
  ))
    if (!menu.contains(target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  const menu = /** @type {HTMLDetailsElement | null} */ (document.querySelector("details[data-menu][open]"));
  if (event.key === " " && event.target instanceof HTMLElement && event.target.matches('a[role="button"]')) {
    event.preventDefault();
    event.target.click();
  } else if (event.key === "Escape" && menu) {
    menu.open = false;
    menu.querySelector("summary")?.focus();
  }
});
document.addEventListener("submit", (event) => {
  const sent = /** @type {HTMLFormElement} */ (event.target);
  if (sent.matches("[data-columns]")) {
    event.preventDefault();
    visit(addressOf(sent));
  } else if (sent === form) {
    if (event.submitter?.hasAttribute("formaction")) return rows.picked.size ? undefined : event.preventDefault(); // to another page
    event.preventDefault();
    act(/** @type {HTMLButtonElement | null} */ (event.submitter)?.value ?? "");
  }
});

/** @param {HTMLElement} button */
function fold(button) {
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", String(open));
  const sign = button.querySelector("[aria-hidden]");
  if (sign) sign.textContent = open ? "▾" : "▸";
  for (const row of /** @type {NodeListOf<HTMLElement>} */ (button.closest("tbody")?.querySelectorAll(".member")))
    row.hidden = !open;
}

/** @param {string} action */
async function act(action) {
  const ids = [...rows.picked].map(Number);
  const field = /** @type {HTMLInputElement | null} */ (form.querySelector("#bulk-tag"));
  const tag = action === "tag" || action === "untag" ? field?.value.trim() : undefined;
  if (!ids.length) return;
  if (tag === "") return field?.focus();
  await send(action, ids, tag);
}

/** @param {string} action @param {number[]} ids @param {string} [tag] */
async function send(action, ids, tag) {
  const response = await fetch(`/api/v1/${noun}/actions`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ action, ids, tag }),
  });
  const told = await response.json().catch(() => ({}));
  if (!response.ok) return toast(told.detail ?? `The server answered ${response.status}.`);
  const words = told.done.length ? [`${told.done.length} ${DONE[action]}${tag ? ` ${tag}` : ""}.`] : [];
  if (told.refused.length)
    words.push(
      `${told.refused.length} left as ${told.refused.length === 1 ? "it was" : "they were"}: ${told.refused[0].reason}.`,
    );
  const undo = told.done.length ? UNDO[action] : undefined;
  toast(
    words.join(" "),
    undo ? { label: "Undo", act: () => send(undo, told.done, undo === "untag" ? tag : undefined) } : null,
  );
  rows.clear();
  await refresh();
}

function wire() {
  rows.refresh();
  for (const hidden of /** @type {NodeListOf<HTMLElement>} */ (
    document.querySelectorAll("[data-fold], [data-keys-help]")
  ))
    hidden.hidden = false;
}

watchPresses();
afterSwap(wire);
wire();
if (location.search.includes("did=")) history.replaceState(null, "", here());
const follow = throttled(refresh, 1500);
new Live("/changes", { change: () => document.querySelector("details[data-menu][open]") || follow() });
