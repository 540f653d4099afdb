// @ts-check
/// <reference lib="dom" />

/**
 * @typedef {{ kind: "math", text: string, display: boolean }} MathJob
 * @typedef {{ kind: "code", text: string, grammar: string }} CodeJob
 * @typedef {MathJob | CodeJob} Job
 * @typedef {Pick<Worker, "postMessage" | "terminate" | "addEventListener">} WorkerLike
 */

/** Milliseconds after which a job is cancelled, because some regular expressions take very long for some texts. */
const JOB_MS = 1000;
/** Time to load a library from the server. */
const LOAD_MS = 30_000;
/** Maximum characters of all texts whose results are kept. */
const MAX_KEPT = 2_000_000;

/**
 * Typesets formulas and highlights code in a worker, so that no text can make the page slow. Keeps results, because
 * the page draws a growing paragraph again with each token.
 */
export class Typesetter {
  /** Results by job, the oldest first; undefined where the text cannot be typeset. @type {Map<string, unknown>} */
  #kept = new Map();
  #keptCharacters = 0;
  /** @type {Map<string, Promise<any>>} */
  #pending = new Map();
  #last = /** @type {Promise<unknown>} */ (Promise.resolve());
  /** @type {WorkerLike | undefined} */
  #worker;

  /**
   * @param {() => WorkerLike} start
   * @param {number} [jobMs]
   */
  constructor(start, jobMs = JOB_MS) {
    this.start = start;
    this.jobMs = jobMs;
  }

  /**
   * Returns the result of an earlier job: a MathTree or the tokens of code.
   * @param {Job} job
   * @returns {any}
   */
  known(job) {
    return this.#kept.get(keyOf(job));
  }

  /**
   * Returns the result of a job; undefined if the text cannot be typeset.
   * @param {Job} job
   * @returns {Promise<any>}
   */
  typeset(job) {
    const key = keyOf(job);
    if (this.#kept.has(key)) return Promise.resolve(this.#kept.get(key));
    let pending = this.#pending.get(key);
    if (!pending) {
      pending = this.#last.then(() => this.#run(job)).catch(() => undefined).then((result) => {
        this.#pending.delete(key);
        this.#keep(key, result);
        return result;
      });
      this.#pending.set(key, pending);
      this.#last = pending;
    }
    return pending;
  }

  /**
   * @param {string} key
   * @param {unknown} result
   */
  #keep(key, result) {
    this.#kept.set(key, result);
    this.#keptCharacters += key.length;
    for (const oldest of this.#kept.keys()) {
      if (this.#keptCharacters <= MAX_KEPT) return;
      this.#kept.delete(oldest);
      this.#keptCharacters -= oldest.length;
    }
  }

  /** @param {Job} job */
  #run(job) {
    return new Promise((resolve) => {
      const worker = this.#worker ??= this.start();
      const done = new AbortController();
      const { signal } = done;
      /** @type {ReturnType<typeof setTimeout> | undefined} */
      let timer;
      const end = (/** @type {unknown} */ result) => {
        clearTimeout(timer);
        done.abort();
        resolve(result);
      };
      const fail = () => {
        worker.terminate();
        this.#worker = undefined;
        end(undefined);
      };
      const limit = (/** @type {number} */ ms) => {
        clearTimeout(timer);
        timer = setTimeout(fail, ms);
      };
      limit(LOAD_MS);
      worker.addEventListener("error", fail, { signal });
      worker.addEventListener("message", (event) => {
        const { data } = /** @type {MessageEvent} */ (event);
        if (data.loading === undefined) end(data.result);
        else limit(data.loading ? LOAD_MS : this.jobMs);
      }, { signal });
      worker.postMessage(job);
    });
  }
}

/** @param {Job} job */
function keyOf(job) {
  return job.kind === "math" ? `${job.display ? "$$" : "$"}${job.text}` : `${job.grammar} ${job.text}`;
}

/** The page's policy forbids to create any other script address from a text. */
function startWorker() {
  const url = new URL("typeset_worker.js", import.meta.url).href;
  /** @type {{ trustedTypes?: { createPolicy(name: string, rules: object): { createScriptURL(url: string): string } } }} */
  const { trustedTypes } = /** @type {any} */ (globalThis);
  policy ??= trustedTypes?.createPolicy("compy", { createScriptURL: () => url });
  return new Worker(policy?.createScriptURL("") ?? url, { type: "module" });
}

/** @type {{ createScriptURL(url: string): string } | undefined} */
let policy;

export const typesetter = new Typesetter(startWorker);
