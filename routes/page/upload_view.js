// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { adviceFor, Failure } from "./api.js";
import { checkFile } from "./batch_file.js";
import { announce, fill, h, icon } from "./dom.js";
import { bytes, count } from "./format.js";

const WINDOWS = [["24h", "a day"], ["72h", "three days"], ["7d", "a week"], ["30d", "30 days"]];

/** The area where a request file is dropped, checked, and started as a batch. */
export class UploadView {
  #chosen = h("div", { class: "chosen" });

  /**
   * @param {import("./session.js").Session} session
   * @param {(batch: import("./batch_card.js").Batch) => void} onStarted
   */
  constructor(session, onStarted) {
    this.session = session;
    this.onStarted = onStarted;
    this.element = h("div", { class: "upload" }, this.#dropZone(), this.#chosen);
  }

  #dropZone() {
    const input = h("input", {
      type: "file",
      id: "batch-file",
      accept: ".jsonl,.ndjson,application/jsonl,text/plain",
      class: "unseen",
    });
    input.addEventListener("change", () => {
      const file = input.files?.[0];
      input.value = ""; // allows choosing the same file again after a change
      if (file) this.choose(file);
    });
    const zone = h(
      "label",
      { class: "drop", for: "batch-file" },
      icon("batch"),
      h("span", {}, h("strong", {}, "Choose a JSONL file"), " or drop it here"),
      h("span", { class: "hint" }, "A line for each request, as for OpenAI's batches"),
    );
    zone.addEventListener("dragover", (event) => {
      event.preventDefault();
      zone.classList.add("over");
    });
    zone.addEventListener("dragleave", () => zone.classList.remove("over"));
    zone.addEventListener("drop", (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      const file = event.dataTransfer?.files[0];
      if (file) this.choose(file);
    });
    return h("div", {}, input, zone);
  }

  /** @param {File} file */
  async choose(file) {
    fill(this.#chosen, h("p", { role: "status" }, `Looking at ${file.name} …`));
    try {
      const { check, whole } = await checkFile(file);
      this.#showCheck(file, check, whole);
    } catch (error) {
      fill(this.#chosen, h("p", { class: "problem", role: "alert" }, `Cannot read ${file.name}: ${error}`));
    }
  }

  /**
   * @param {File} file
   * @param {import("./batch_file.js").BatchCheck} check
   * @param {boolean} whole
   */
  #showCheck(file, check, whole) {
    const endpoints = [...check.urls.keys()];
    const endpoint = h(
      "select",
      { id: "batch-endpoint" },
      endpoints.map((url) => h("option", { value: url }, url)),
    );
    endpoint.value = check.endpoint ?? "";
    const span = h(
      "select",
      { id: "batch-window" },
      WINDOWS.map(([value, text]) => h("option", { value }, text)),
    );
    const lenient = h("input", { type: "checkbox" });
    const start = h(
      "button",
      { type: "submit", class: "primary", disabled: check.endpoint === undefined },
      "Start the batch",
    );
    const note = h("p", { class: "note", role: "status" });
    const abort = new AbortController();
    const leave = () => {
      abort.abort(new DOMException("Left", "AbortError"));
      fill(this.#chosen);
    };
    const form = h(
      "form",
      {
        class: "card",
        "aria-label": `Batch of ${file.name}`,
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          start.disabled = true;
          const options = {
            endpoint: endpoint.value,
            completion_window: span.value,
            strict: !lenient.checked,
          };
          this.#start(file, options, note, abort.signal)
            .finally(() => start.disabled = false);
        },
      },
      h("h2", {}, file.name),
      h("p", { class: "figures" }, summary(file, check, whole)),
      problemList(check),
      endpoints.length > 1 &&
        h("p", { class: "problem" }, "Its lines name several endpoints; a batch answers those of one."),
      h(
        "div",
        { class: "row" },
        h("label", {}, "Endpoint ", endpoint),
        h("label", {}, "Within ", span),
        h("label", { class: "check" }, lenient, " Go on where lines are bad"),
      ),
      h(
        "div",
        { class: "row" },
        start,
        h("button", { type: "button", onclick: leave }, "Not this file"),
      ),
      note,
    );
    fill(this.#chosen, form);
    announce(summary(file, check, whole));
    start.focus();
  }

  /**
   * @param {File} file
   * @param {{ endpoint: string, completion_window: string, strict: boolean }} options
   * @param {HTMLElement} note where it says how far it is
   * @param {AbortSignal} signal
   */
  async #start(file, options, note, signal) {
    const say = (/** @type {string} */ text) => {
      if (note.textContent !== text) note.textContent = text;
    };
    const { api } = this.session;
    try {
      const uploaded = await this.session.call(() => {
        const form = new FormData();
        form.append("purpose", "batch");
        form.append("file", file, file.name);
        const onProgress = (/** @type {number} */ share) =>
          say(`Sending the file: ${Math.floor(100 * share)} %`);
        return api.upload("v1/files", form, { signal, onProgress });
      });
      say("Starting the batch");
      const metadata = { name: file.name.slice(0, 512) };
      const body = { input_file_id: uploaded.id, ...options, metadata };
      const batch = await this.session.call(() => api.post("v1/batches", body));
      fill(this.#chosen);
      this.onStarted(batch);
    } catch (error) {
      if (signal.aborted) return;
      const advice = error instanceof Failure ? adviceFor(error) : "";
      say(`${error instanceof Error ? error.message : error}. ${advice}`.replaceAll("..", "."));
    }
  }
}

/**
 * @param {File} file
 * @param {import("./batch_file.js").BatchCheck} check
 * @param {boolean} whole
 */
function summary(file, check, whole) {
  const models = [...check.models];
  return [
    `${count(check.lines)} lines${whole ? "" : " in the first 64 MiB"}, ${bytes(file.size)}`,
    check.bad > 0 ? `${count(check.bad)} bad` : "no problem found",
    models.length > 0 && `for ${models.slice(0, 3).join(", ")}${models.length > 3 ? " and others" : ""}`,
  ].filter(Boolean).join(" · ");
}

/** @param {import("./batch_file.js").BatchCheck} check */
function problemList({ problems, bad }) {
  return problems.length > 0 && h(
    "ul",
    { class: "problems" },
    problems.map(({ line, message }) => h("li", {}, `Line ${line} ${message}.`)),
    bad > problems.length && h("li", {}, `and ${count(bad - problems.length)} more`),
  );
}
