// @ts-check

/**
 * @typedef {{ line: number, message: string }} Problem
 */

/** How many problems are shown; all are counted. */
const SHOWN = 8;
/** Larger files are checked only up to this size; the server checks the whole file. */
export const CHECKED_BYTES = 64 * 2 ** 20;
/** Longer lines are not checked. */
const LINE_CHARACTERS = 2 ** 23;

/** Checks each line of a batch file before the upload, and collects counts and problems. */
export class BatchCheck {
  lines = 0;
  bad = 0;
  /** @type {Problem[]} */
  problems = [];
  /** Line counts by URL. @type {Map<string, number>} */
  urls = new Map();
  /** @type {Set<string>} */
  models = new Set();
  #ids = /** @type {Map<string, number>} */ (new Map());

  /** The URL of most lines, which becomes the batch's endpoint. */
  get endpoint() {
    return [...this.urls].sort(([, a], [, b]) => b - a)[0]?.[0];
  }

  /**
   * @param {string} text
   * @param {number} number from 1
   */
  add(text, number) {
    if (text.trim() === "") return;
    this.lines++;
    const message = this.#problem(text, number);
    if (message === undefined) return;
    this.bad++;
    if (this.problems.length < SHOWN) this.problems.push({ line: number, message });
  }

  /**
   * @param {string} text
   * @param {number} number
   * @returns {string | undefined}
   */
  #problem(text, number) {
    if (text.length > LINE_CHARACTERS) return undefined;
    /** @type {any} */
    let line;
    try {
      line = JSON.parse(text);
    } catch {
      return "is not JSON; a batch file has one JSON object a line";
    }
    if (typeof line !== "object" || line === null || Array.isArray(line)) return "is not a JSON object";
    const { custom_id: id, method, url, body } = line;
    if (typeof id !== "string" || id === "") return '"custom_id" must be a text that names the line';
    const before = this.#ids.get(id);
    if (before !== undefined) return `"custom_id" ${JSON.stringify(id.slice(0, 40))} is line ${before}'s too`;
    this.#ids.set(id, number);
    if (method !== "POST") return '"method" must be "POST"';
    if (typeof url !== "string" || !url.startsWith("/")) {
      return '"url" must be a path such as "/v1/chat/completions"';
    }
    this.urls.set(url, (this.urls.get(url) ?? 0) + 1);
    if (typeof body !== "object" || body === null || Array.isArray(body)) {
      return '"body" must be a JSON object';
    }
    if (body.stream) return '"stream" must be false: a batch has no streams';
    if (typeof body.model === "string") this.models.add(body.model);
    return undefined;
  }
}

/**
 * Checks the lines of a file, or of its first 64 MiB.
 * @param {Blob} file
 * @returns {Promise<{ check: BatchCheck, whole: boolean }>}
 */
export async function checkFile(file) {
  const check = new BatchCheck();
  const whole = file.size <= CHECKED_BYTES;
  const reader = file.slice(0, CHECKED_BYTES).stream().pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let number = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    const lines = (rest + next.value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) check.add(line, ++number);
  }
  if (whole) check.add(rest, ++number);
  return { check, whole };
}
