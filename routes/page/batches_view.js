// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { adviceFor, Failure } from "./api.js";
import { batchCard, hasEnded, nameOf } from "./batch_card.js";
import { announce, fill, h, saveBlob } from "./dom.js";
import { toast } from "./toast.js";
import { UploadView } from "./upload_view.js";

/**
 * @typedef {import("./batch_card.js").Batch} Batch
 * @typedef {import("./batch_card.js").Pace} Pace
 */

/** Interval of list updates while a batch is unfinished. Batches wait for each other, so any of them may change. */
const REFRESH_MS = 3000;
const LISTED = 100;

/** Uploads of request files and the list of batches. It follows running batches only while the view is visible. */
export class BatchesView {
  /** @type {Batch[]} */
  #batches = [];
  #paces = /** @type {Map<string, Pace>} */ (new Map());
  #list = h("ul", { class: "plain cards" });
  #note = h("div", { class: "note" });
  #upload;
  #shown = false;
  #timer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  /** The batch whose events are being read. */
  #followed = /** @type {{ id: string, abort: AbortController } | undefined} */ (undefined);

  /**
   * @param {HTMLElement} element
   * @param {import("./session.js").Session} session
   */
  constructor(element, session) {
    this.session = session;
    this.#upload = new UploadView(session, (batch) => {
      toast(`${nameOf(batch)} has begun.`);
      this.refresh();
    });
    fill(
      element,
      h("div", { class: "bar" }, h("h1", { id: "batches-title" }, "Batches")),
      h(
        "div",
        { class: "page", tabindex: 0, role: "region", "aria-label": "Files and batches" },
        h(
          "p",
          { class: "lead" },
          "Many requests in one file, answered whenever the server has time, each exactly once, also after a restart.",
        ),
        this.#upload.element,
        this.#note,
        this.#list,
      ),
    );
    document.addEventListener("visibilitychange", () => this.#look());
    session.addEventListener("connection", () => session.connected && this.#look());
  }

  /** @param {File} file of requests */
  choose(file) {
    this.#upload.choose(file);
  }

  /** @param {boolean} shown */
  show(shown) {
    this.#shown = shown;
    this.#look();
  }

  #look() {
    if (this.#shown && !document.hidden) this.refresh();
    else {
      clearTimeout(this.#timer);
      this.#followed?.abort.abort();
    }
  }

  /** Loads the whole list again. */
  async refresh() {
    clearTimeout(this.#timer);
    try {
      const { data, has_more: more } = await this.session.call(() =>
        this.session.api.json(`v1/batches?limit=${LISTED}`)
      );
      this.#tellEnds(data);
      this.#batches = data;
      this.#upload.element.hidden = false;
      const hint = data.length === 0
        ? "There are no batches yet."
        : more && `The newest ${LISTED} are shown.`;
      fill(this.#note, hint && h("p", { class: "hint" }, hint));
      this.#draw();
      this.#follow();
    } catch (error) {
      this.#showTrouble(error);
    }
    const open = this.#batches.some((batch) => !hasEnded(batch));
    if (open && this.#shown && !document.hidden) this.#timer = setTimeout(() => this.refresh(), REFRESH_MS);
  }

  /** @param {unknown} error */
  #showTrouble(error) {
    if (error instanceof Failure && error.code === "unknown_url") {
      this.#upload.element.hidden = true;
      fill(
        this.#note,
        h("p", {}, "This server keeps no files, so it answers no batches."),
        h(
          "p",
          { class: "hint" },
          "It was started with ",
          h("code", {}, "--data none"),
          ". With a folder, ",
          h("code", {}, "--data DIR"),
          ", they are here.",
        ),
      );
      return;
    }
    const advice = error instanceof Failure ? adviceFor(error) : "";
    const text = error instanceof Error ? error.message : String(error);
    fill(
      this.#note,
      h("div", { class: "trouble", role: "alert" }, h("p", {}, text), h("p", { class: "advice" }, advice)),
    );
  }

  /**
   * Announces the batches that have ended since the last update.
   * @param {Batch[]} batches
   */
  #tellEnds(batches) {
    for (const batch of batches) {
      const before = this.#batches.find(({ id }) => id === batch.id);
      if (before && !hasEnded(before) && hasEnded(batch)) announce(`${nameOf(batch)}: ${batch.status}`);
    }
  }

  #draw() {
    const focused = document.activeElement;
    const [card, name] = focused instanceof HTMLButtonElement && this.#list.contains(focused)
      ? [focused.closest("li")?.id, focused.dataset.name]
      : [];
    fill(
      this.#list,
      this.#batches.map((batch) => batchCard(batch, this.#paces.get(batch.id), this.#actions)),
    );
    // Keep the keyboard focus on the same button.
    if (card && name) {
      const again = [...this.#list.querySelectorAll("button")].find((button) => {
        return button.closest("li")?.id === card && button.dataset.name === name;
      });
      again?.focus();
    }
  }

  /** Follows the events of the running batch, else of the next one: only they report the speed. */
  async #follow() {
    const open = this.#batches.filter((batch) => !hasEnded(batch));
    const running = open.find(({ status }) => status === "in_progress") ?? open.at(-1);
    if (!running || !this.#shown || document.hidden || this.#followed) return;
    const followed = { id: running.id, abort: new AbortController() };
    this.#followed = followed;
    try {
      const { signal } = followed.abort;
      for await (const event of this.session.api.stream(`v1/batches/${running.id}/events`, { signal })) {
        const place = this.#batches.findIndex(({ id }) => id === running.id);
        if (place < 0) break;
        this.#paces.set(running.id, event);
        this.#tellEnds([event.batch]);
        this.#batches[place] = event.batch;
        this.#draw();
      }
    } catch {
      // The next list update reports the problem.
    }
    this.#followed = undefined;
    if (!followed.abort.signal.aborted) this.refresh();
  }

  /** @type {import("./batch_card.js").BatchActions} */
  #actions = {
    cancel: async (batch) => {
      try {
        await this.session.call(() => this.session.api.post(`v1/batches/${batch.id}/cancel`, {}));
        toast(`${nameOf(batch)} is being cancelled. What is answered already is kept.`);
      } catch (error) {
        toast(error instanceof Error ? error.message : String(error));
      }
      this.refresh();
    },
    download: async (id, name) => {
      const path = `v1/files/${encodeURIComponent(id)}/content`;
      const { api } = this.session;
      // Without a key the browser can save the download directly.
      if (api.key === "") return h("a", { href: new URL(path, api.base).href, download: name }).click();
      try {
        const response = await this.session.call(() => api.send(path));
        saveBlob(name, await response.blob());
      } catch (error) {
        toast(`${name} could not be had: ${error instanceof Error ? error.message : error}`);
      }
    },
  };
}
