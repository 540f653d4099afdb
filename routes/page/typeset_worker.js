// @ts-check
import { tokensOf } from "./code_tokens.js";
import { mathTree } from "./math_tree.js";

/*
 * Typesets formulas and highlights code beside the page, one job at a time (typesetter.js). The libraries are loaded
 * with the first job that needs them. The page ends this worker if a job takes too long.
 */

const port = /** @type {{ postMessage(value: unknown): void, addEventListener: typeof addEventListener }} */
  (/** @type {unknown} */ (globalThis));

/**
 * Loads a module of a library. The page allows more time for it than for the work itself.
 * @param {string} path
 */
async function load(path) {
  port.postMessage({ loading: true });
  const module = await import(new URL(path, import.meta.url).href);
  port.postMessage({ loading: false });
  return module;
}

/** @param {import("./typesetter.js").Job} job */
async function typeset(job) {
  if (job.kind === "math") return mathTree((await load("temml.js")).default, job.text, job.display);
  const { tokenizer } = await load("highlight/tokenize.js");
  const grammar = async (/** @type {string} */ name) => (await load(`highlight/${name}.js`)).default;
  return await tokensOf(tokenizer, grammar, job.grammar, job.text);
}

port.addEventListener("message", async ({ data }) => {
  try {
    port.postMessage({ result: await typeset(data) });
  } catch (error) {
    port.postMessage({ problem: String(error) });
  }
});
