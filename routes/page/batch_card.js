// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { h, icon } from "./dom.js";
import { count, duration, moment, rate } from "./format.js";

/**
 * A batch as `/v1/batches` returns it, and its speed, if known.
 * @typedef {any} Batch
 * @typedef {{ eta_seconds: number | null, output_tokens_per_second: number | null }} Pace
 * @typedef {{ cancel: (batch: Batch) => void, download: (id: string, name: string) => void }} BatchActions
 */

const ENDED = ["completed", "failed", "expired", "cancelled"];

/** @type {Record<string, string>} */
const STATUS = {
  validating: "being checked",
  failed: "failed",
  in_progress: "running",
  finalizing: "writing its files",
  completed: "done",
  expired: "out of time",
  cancelling: "being cancelled",
  cancelled: "cancelled",
};

/** How many bad lines are shown. */
const SHOWN = 8;

/** @param {Batch} batch */
export function hasEnded(batch) {
  return ENDED.includes(batch.status);
}

/** @param {Batch} batch */
export function nameOf(batch) {
  return batch.metadata?.name ?? batch.id;
}

/**
 * Returns a batch's progress as one line of text.
 * @param {Batch} batch
 * @param {Pace | undefined} pace
 */
export function progressText({ status, request_counts: counts, usage }, pace) {
  const { total, completed, failed } = counts;
  const running = status === "in_progress";
  return [
    total > 0 && `${count(completed + failed)} of ${count(total)} lines`,
    failed > 0 && `${count(failed)} failed`,
    usage?.output_tokens > 0 && `${count(usage.output_tokens)} tokens written`,
    running && pace?.output_tokens_per_second && `${rate(pace.output_tokens_per_second)} tokens/s`,
    running && typeof pace?.eta_seconds === "number" && `about ${duration(Math.ceil(pace.eta_seconds))} left`,
  ].filter(Boolean).join(" · ");
}

/**
 * @param {Batch} batch
 * @param {Pace | undefined} pace
 * @param {BatchActions} actions
 */
export function batchCard(batch, pace, actions) {
  const { request_counts: counts, status } = batch;
  const name = nameOf(batch);
  const stem = name.replace(/\.jsonl$/i, "");
  return h(
    "li",
    { class: "card", id: batch.id },
    h(
      "div",
      { class: "row" },
      h("h2", {}, name),
      h("span", { class: `badge ${status}` }, STATUS[status] ?? status),
    ),
    h("progress", {
      "aria-label": `Progress of ${name}`,
      max: Math.max(counts.total, 1),
      value: counts.completed + counts.failed,
    }),
    h("p", { class: "figures" }, progressText(batch, pace) || "no line is answered yet"),
    h("p", { class: "hint" }, `${batch.endpoint}, started ${moment(batch.created_at)}`),
    problems(batch),
    h(
      "div",
      { class: "row" },
      !hasEnded(batch) && status !== "cancelling" &&
        h(
          "button",
          { type: "button", "data-name": "cancel", onclick: () => actions.cancel(batch) },
          "Cancel",
        ),
      batch.output_file_id &&
        downloadButton("Answers", batch.output_file_id, `${stem}-answers.jsonl`, actions),
      batch.error_file_id && downloadButton("Errors", batch.error_file_id, `${stem}-errors.jsonl`, actions),
    ),
  );
}

/**
 * @param {string} label
 * @param {string} id
 * @param {string} name
 * @param {BatchActions} actions
 */
function downloadButton(label, id, name, actions) {
  const onclick = () => actions.download(id, name);
  return h("button", { type: "button", "data-name": label, onclick }, icon("download"), ` ${label}`);
}

/** @param {Batch} batch */
function problems({ errors }) {
  const all = errors?.data ?? [];
  if (all.length === 0) return null;
  const more = all.length - SHOWN;
  return h(
    "ul",
    { class: "problems" },
    all.slice(0, SHOWN).map((/** @type {{ line: number | null, message: string }} */ { line, message }) => {
      return h("li", {}, line === null ? message : `Line ${line}: ${message}`);
    }),
    more > 0 && h("li", {}, `and ${count(more)} more`),
  );
}
