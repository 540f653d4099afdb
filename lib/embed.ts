import { encodeAll, normalized, relevance } from "../engine/answers/rows.ts";
import { type Engine, withPauses } from "../engine/mod.ts";
import { CompyError, refuse, toCompyError } from "./errors.ts";
import { checkOptions, type OptionTable, positive } from "./options.ts";

/**
 * Options of `embed`.
 *
 * ```ts
 * import { type EmbedOptions, loadModel } from "compy";
 *
 * const options: EmbedOptions = { dimensions: 64, signal: AbortSignal.timeout(60_000) };
 * await using model = await loadModel();
 * console.log((await model.embed("a fox in the snow", options)).vectors[0].length);
 * ```
 */
export interface EmbedOptions {
  /** Number of leading values to keep of each vector; by default all. */
  readonly dimensions?: number;
  /** Priority of the request: interactive requests precede batch requests. Default interactive. */
  readonly priority?: "interactive" | "batch";
  /** Cancels the request when aborted; the request then throws the signal's reason. */
  readonly signal?: AbortSignal;
}

const EMBED_OPTIONS: OptionTable<EmbedOptions> = { dimensions: "number", priority: "text", signal: "object" };

/**
 * The vectors of the texts.
 *
 * ```ts
 * import { type Embeddings, loadModel } from "compy";
 *
 * const likeness = ({ vectors: [a, b] }: Embeddings) => a.reduce((sum, x, i) => sum + x * b[i], 0);
 * await using model = await loadModel();
 * console.log(likeness(await model.embed(["a fox in the snow", "a hare in the grass"])));
 * ```
 */
export interface Embeddings {
  /** One vector of length 1 per text, in the order of the texts. */
  readonly vectors: readonly Float32Array[];
  /** Token counts, summed over all texts. */
  readonly usage: { readonly promptTokens: number; readonly cachedTokens: number };
}

/**
 * Options of `rerank`.
 *
 * ```ts
 * import { type RerankOptions } from "compy";
 *
 * const best: RerankOptions = { top: 3 };
 * // const { results } = await ranker.rerank("animals of the snow", documents, best);
 * console.log(best);
 * ```
 */
export interface RerankOptions {
  /** Number of best documents to return; by default all. */
  readonly top?: number;
  /** Priority of the request: interactive requests precede batch requests. Default interactive. */
  readonly priority?: "interactive" | "batch";
  /** Cancels the request when aborted; the request then throws the signal's reason. */
  readonly signal?: AbortSignal;
}

const RERANK_OPTIONS: OptionTable<RerankOptions> = { top: "number", priority: "text", signal: "object" };

/**
 * The documents in order of their relevance to a query.
 *
 * ```ts
 * import { CompyError, loadModel, type Reranked } from "compy";
 *
 * const best = ({ results: [{ index }] }: Reranked, documents: string[]) => documents[index];
 * const documents = ["a stone", "a fox in the snow"];
 * await using model = await loadModel(); // a model that ranks, such as bge-reranker's
 * try {
 *   console.log(best(await model.rerank("animals of the snow", documents), documents));
 * } catch (error) {
 *   if (!(error instanceof CompyError && error.code === "not_supported")) throw error; // as of the demo model
 * }
 * ```
 */
export interface Reranked {
  /** Documents, best first. `index` is the document's position, `score` its relevance from 0 to 1. */
  readonly results: readonly { readonly index: number; readonly score: number }[];
  /** Token counts, summed over all texts. */
  readonly usage: { readonly promptTokens: number; readonly cachedTokens: number };
}

/** Returns one vector per text. Throws CompyError, or the signal's reason. */
export async function embed(
  engine: Engine,
  texts: string | readonly (string | readonly number[])[],
  options: EmbedOptions,
): Promise<Embeddings> {
  checkOptions(options, EMBED_OPTIONS);
  const { id, pooled } = engine.model;
  if (pooled?.kind === "rank") {
    throw new CompyError(
      "not_supported",
      `The model "${id}" ranks documents and gives no vectors: use rerank()`,
    );
  }
  const most = pooled?.size ?? Infinity;
  const { dimensions } = options;
  if (dimensions !== undefined && !(Number.isInteger(dimensions) && dimensions >= 1 && dimensions <= most)) {
    refuse(
      "dimensions",
      `must be a whole number from 1 to ${most}, the vector length of this model`,
      dimensions,
    );
  }
  const each = typeof texts === "string" ? [texts] : texts;
  each.forEach?.((text, i) => {
    if (typeof text !== "string" && !Array.isArray(text)) {
      refuse(`texts[${i}]`, "must be a string or token ids", text);
    }
  });
  const { rows, usage } = await rowsOf(engine, each, "texts", options, (text, index) => {
    const ids = typeof text === "string" ? engine.encodePrompt(text.toWellFormed()) : text;
    return ids.length > 0 ? ids : refuse(`texts[${index}]`, "must have at least one token", text);
  });
  return { vectors: rows.map((row) => normalized(row, dimensions)), usage };
}

/** Returns the documents ordered by relevance. Throws CompyError, or the signal's reason. */
export async function rerank(
  engine: Engine,
  query: string,
  documents: readonly string[],
  options: RerankOptions,
): Promise<Reranked> {
  checkOptions(options, RERANK_OPTIONS);
  const { id, pooled } = engine.model;
  if (pooled !== undefined && pooled.kind !== "rank") {
    const message =
      `The model "${id}" cannot rank: it has no ranking head (pooling_type rank and cls.output.weight)`;
    throw new CompyError("not_supported", message);
  }
  if (typeof query !== "string") refuse("query", "must be a string", query);
  const { top } = options;
  positive("top", top);
  documents.forEach?.((document, i) => {
    if (typeof document !== "string") refuse(`documents[${i}]`, "must be a string", document);
  });
  const judged = query.toWellFormed();
  const { rows, usage } = await rowsOf(
    engine,
    documents,
    "documents",
    options,
    (document) => engine.encodePair(judged, document.toWellFormed()),
  );
  const results = rows
    .map((logits, index) => ({ index, score: relevance(logits) }))
    .sort((a, b) => b.score - a.score || a.index - b.index)
    .slice(0, top);
  return { results, usage };
}

async function rowsOf<Text>(
  engine: Engine,
  texts: readonly Text[],
  field: string,
  { priority, signal }: Pick<EmbedOptions, "priority" | "signal">,
  encode: (text: Text, index: number) => readonly number[],
) {
  if (!Array.isArray(texts)) refuse(field, "must be an array", texts);
  signal?.throwIfAborted();
  try {
    const inputs = await withPauses(() => encodeAll(texts, encode));
    return await engine.embed({ inputs, priority, signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw toCompyError(error);
  }
}
