/** Live updates: one event stream with its indicator, paused while the page is hidden; and regions swapped in place. */

/** The server's data of this page. @returns {import("../types").PageData} */
export const pageData = () => JSON.parse(document.getElementById("page-data")?.textContent ?? "{}");

/**
 * What the indicator says: its text and its state. Pure.
 * @param {{open: boolean, done: boolean, hidden: boolean, silentFor: number}} now
 */
export function liveText({ open, done, hidden, silentFor }) {
  if (done) return ["complete", "done"];
  if (hidden) return ["paused", "paused"];
  if (open) return ["live", "live"];
  return [`stale ${Math.max(0, Math.round(silentFor / 1000))} s`, "stale"];
}

export class Live {
  /**
   * @param {string} url address of the stream; `last_event_id` is added when there is a place to go on from
   * @param {Record<string, (data: any) => void>} handlers by event name
   * @param {{place?: string, onOpen?: () => void, done?: boolean}} options done: nothing more will ever come
   */
  constructor(url, handlers, { place = "", onOpen = () => {}, done = false } = {}) {
    this.url = url;
    this.handlers = handlers;
    this.place = place;
    this.onOpen = onOpen;
    this.done = done;
    this.heardAt = Date.now();
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {HTMLElement | null} */
    this.indicator = document.querySelector("[data-live]");
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close() : this.#open()));
    this.#open();
    setInterval(() => this.#show(), 1000);
  }

  /** No more events will come: close and say so. */
  finish() {
    this.done = true;
    this.#close();
  }

  #open() {
    if (!this.source && !this.done && !document.hidden) this.#connect();
    this.#show();
  }

  #connect() {
    const from = this.place
      ? `${this.url.includes("?") ? "&" : "?"}last_event_id=${encodeURIComponent(this.place)}`
      : "";
    const source = (this.source = new EventSource(this.url + from));
    source.addEventListener("open", () => {
      this.onOpen();
      this.#show();
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED && this.source === source) {
        this.source = null;
        setTimeout(() => this.#open(), 2000);
      }
      this.#show();
    });
    for (const [name, handle] of Object.entries(this.handlers)) {
      source.addEventListener(name, (event) => {
        this.place = event.lastEventId || this.place;
        handle(event.data ? JSON.parse(event.data) : null);
      });
    }
  }

  #close() {
    this.source?.close();
    this.source = null;
    this.#show();
  }

  #show() {
    if (!this.indicator) return;
    const open = this.source?.readyState === EventSource.OPEN;
    if (open) this.heardAt = Date.now();
    const [text, state] = liveText({
      open,
      done: this.done,
      hidden: document.hidden,
      silentFor: Date.now() - this.heardAt,
    });
    if (this.indicator.textContent !== text) this.indicator.textContent = text;
    this.indicator.dataset.state = state;
  }
}

const REGIONS = "application/vnd.ampboard.regions+json";
let refreshing = false,
  again = false;
/** What the server called the content of each region that is shown. @type {Map<string, string> | null} */
let marks = null;

/** The marks in a page's `data-marks`. Pure. @param {string} text @returns {Map<string, string>} */
export const marksOf = (text) =>
  new Map(
    text
      .split(",")
      .filter(Boolean)
      .map((part) => /** @type {[string, string]} */ (part.split("=", 2))),
  );

/**
 * Ask for every `data-region` of this page that changed and swap it; focus and open details stay as they are.
 * @param {() => void} onSwap
 * @returns {Promise<void>}
 */
export async function refreshRegions(onSwap = () => {}) {
  if (refreshing) return void (again = true);
  refreshing = true;
  marks ??= marksOf(document.querySelector("main")?.dataset.marks ?? "");
  try {
    const held = [...marks].map((pair) => pair.join("=")).join(",");
    const response = await fetch(location.href, {
      cache: "no-store",
      headers: { Accept: REGIONS, "Ampboard-Regions": held },
    });
    if (!response.ok || response.redirected) return;
    const { regions } = await response.json();
    for (const [name, { mark, html }] of /** @type {[string, {mark: string, html: string}][]} */ (
      Object.entries(regions)
    )) {
      if (swapRegion(name, html)) marks.set(name, mark);
    }
    onSwap();
  } catch {
    /* the indicator shows a lost connection; the next event tries again */
  } finally {
    refreshing = false;
    if (again) {
      again = false;
      setTimeout(() => refreshRegions(onSwap), 500);
    }
  }
}

/** Whether the region shows the new content; one that somebody is in waits. @param {string} name @param {string} html */
function swapRegion(name, html) {
  const held = /** @type {HTMLElement | null} */ (document.querySelector(`[data-region="${name}"]`));
  if (!held || held.contains(document.activeElement)) return false;
  const open = [...held.querySelectorAll("details")].map((details) => details.open);
  held.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  held.querySelectorAll("details").forEach((details, index) => (details.open = open[index] ?? details.open));
  return true;
}

/**
 * Run `work` at most once in `interval` ms, the last call always included.
 * @param {() => void} work @param {number | (() => number)} interval
 */
export function throttled(work, interval) {
  /** @type {ReturnType<typeof setTimeout> | null} */
  let timer = null;
  let last = 0;
  return () => {
    if (timer) return;
    timer = setTimeout(
      () => {
        timer = null;
        last = Date.now();
        work();
      },
      Math.max(0, (typeof interval === "number" ? interval : interval()) - (Date.now() - last)),
    );
  };
}
