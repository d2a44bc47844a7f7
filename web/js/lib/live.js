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
    const from = this.place ? `${this.url.includes("?") ? "&" : "?"}last_event_id=${encodeURIComponent(this.place)}` : "";
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
    const [text, state] = liveText({ open, done: this.done, hidden: document.hidden, silentFor: Date.now() - this.heardAt });
    if (this.indicator.textContent !== text) this.indicator.textContent = text;
    this.indicator.dataset.state = state;
  }
}

let refreshing = false, again = false;

/**
 * Fetch this page again and swap every `data-region` that changed; focus and open details stay as they are.
 * @param {(fresh: Document) => void} onSwap
 * @returns {Promise<void>}
 */
export async function refreshRegions(onSwap = () => {}) {
  if (refreshing) return void (again = true);
  refreshing = true;
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!response.ok || response.redirected) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const held of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-region]"))) {
      const region = fresh.querySelector(`[data-region="${held.dataset.region}"]`);
      if (!region || region.innerHTML === held.innerHTML || held.contains(document.activeElement)) continue;
      const open = [...held.querySelectorAll("details")].map((details) => details.open);
      held.replaceChildren(...region.childNodes);
      held.querySelectorAll("details").forEach((details, index) => (details.open = open[index] ?? details.open));
    }
    onSwap(fresh);
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
    timer = setTimeout(() => {
      timer = null;
      last = Date.now();
      work();
    }, Math.max(0, (typeof interval === "number" ? interval : interval()) - (Date.now() - last)));
  };
}
