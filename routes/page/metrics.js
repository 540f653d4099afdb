// @ts-check

/**
 * @typedef {{ name: string, labels: Record<string, string>, value: number }} Sample
 */

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$/;
const LABEL = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/**
 * Returns the samples of a text in Prometheus' format. Skips lines that are not samples.
 * @param {string} text
 * @returns {Sample[]}
 */
export function parseMetrics(text) {
  return text.split("\n").flatMap((line) => {
    const match = line.startsWith("#") ? null : LINE.exec(line);
    if (!match) return [];
    const [, name, labels = "", number] = match;
    const value = number === "+Inf" ? Infinity : number === "-Inf" ? -Infinity : Number(number);
    const pairs = [...labels.matchAll(LABEL)].map(([, label, text]) => {
      return [label, text.replace(/\\(.)/g, (_, character) => character === "n" ? "\n" : character)];
    });
    return [{ name, labels: Object.fromEntries(pairs), value }];
  });
}

/**
 * Returns the sum of a metric over all labels, such as all models; undefined if it is missing.
 * @param {readonly Sample[]} samples
 * @param {string} name
 */
export function total(samples, name) {
  const found = samples.filter((sample) => sample.name === name);
  return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0);
}

/**
 * The plotted values at one time.
 * @typedef {{ generated: number, read: number, running: number, waiting: number, kv: number }} Point
 */

/** The recent values of a server, computed from its counters. */
export class History {
  /** @type {Point[]} */
  points = [];
  #before = /** @type {{ time: number, generated: number, read: number } | undefined} */ (undefined);

  /** @param {number} length moments that are kept */
  constructor(length) {
    this.length = length;
  }

  /**
   * @param {readonly Sample[]} samples
   * @param {number} time milliseconds
   */
  add(samples, time) {
    const value = (/** @type {string} */ name) => total(samples, name) ?? 0;
    const generated = value("compy_generated_tokens_total");
    const read = value("compy_prompt_tokens_total") - value("compy_cached_prompt_tokens_total");
    const before = this.#before;
    this.#before = { time, generated, read };
    const seconds = before ? (time - before.time) / 1000 : 0;
    // A counter that falls means a restarted server; a long gap means a hidden page.
    const rate = (/** @type {number} */ now, /** @type {number} */ then) => {
      return seconds > 0 && seconds < 5 && now >= then ? (now - then) / seconds : 0;
    };
    const blocks = value("compy_kv_blocks");
    this.points.push({
      generated: rate(generated, before?.generated ?? generated),
      read: rate(read, before?.read ?? read),
      running: value("compy_requests_running"),
      waiting: value("compy_requests_waiting"),
      kv: blocks > 0 ? 100 * value("compy_kv_blocks_used") / blocks : 0,
    });
    if (this.points.length > this.length) this.points.shift();
  }
}

/**
 * Returns the upper end of an axis that shows `most`: 1, 2 or 5 times a power of ten.
 * @param {number} most
 * @param {number} least the smallest top
 */
export function axisTop(most, least) {
  const wanted = Math.max(most, least);
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= wanted) ?? 10 * power;
}

/**
 * Returns an SVG path through the values; the last value is at the right edge.
 * @param {readonly number[]} values
 * @param {{ width: number, height: number, slots: number, top: number }} frame `slots`: values from edge to edge
 */
export function linePath(values, { width, height, slots, top }) {
  return values.map((value, i) => {
    const x = width * (1 - (values.length - 1 - i) / (slots - 1));
    const y = height * (1 - Math.min(value / top, 1));
    return `${i === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join("");
}
