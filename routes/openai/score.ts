import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { encodeAll, relevance, similarity } from "../../engine/answers/rows.ts";
import { boundedArray, LIMITS, modelField } from "../core/fields.ts";
import { ApiError } from "../core/errors.ts";
import { embedAll, encodeText } from "../generation/embedding.ts";
import { answerHead, inputUsage, inputUsageOf } from "../generation/answers.ts";
import { headOf, type Prepared, type RunOptions } from "../generation/generation.ts";
import { type Generation, generation } from "../generation/generation_endpoint.ts";
import { paced } from "../core/paced.ts";

const texts = z.union([z.string(), boundedArray(z.string(), 1, LIMITS.texts)], {
  error: `must be a text, or an array of 1 to ${LIMITS.texts} texts`,
});

const request = z.object({
  model: modelField,
  text_1: texts,
  text_2: texts,
}).openapi("ScoreRequest", {
  description:
    "A single text is compared with each text of the other field. Arrays of the same length are compared text by text.",
});

type Body = z.output<typeof request>;

const answer = z.object({
  ...answerHead,
  object: z.literal("list"),
  data: z.array(z.object({
    index: z.number().int(),
    object: z.literal("score"),
    score: z.number().openapi({ description: "Relevance from 0 to 1, or cosine similarity from -1 to 1" }),
  })),
  usage: inputUsage,
}).openapi("Scores");

/** Endpoints that score pairs of texts, in vLLM's format, with and without `/v1` in the path. */
export const SCORES: readonly Generation[] = [
  score("/v1/score", "createScore"),
  score("/score", "createScoreWithoutVersion"),
];

function score(path: string, operationId: string): Generation {
  return generation({
    path,
    operationId,
    tag: "Embeddings",
    ability: "scoring",
    summary: "Score pairs of texts",
    description:
      "A model with a ranking head scores pairs by relevance, like /v1/rerank. With another model, a score is the cosine " +
      "similarity of the texts' embeddings.",
    request,
    answer,
    example: { model: "demo", text_1: "animals of the snow", text_2: ["a fox in the snow", "a stone"] },
    forms: () => [],
    prepare,
  });
}

async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const pairs = pairsOf(body);
  const run = engine.model.pooled?.kind === "rank"
    ? await judged(engine, pairs)
    : await compared(engine, pairs);
  return {
    stream: false,
    answer: async (signal) => {
      const { rows, usage } = await embedAll(engine, run.inputs, options, signal);
      const data = run.scores(rows).map((score, index) => ({ index, object: "score", score }));
      return { ...headOf(engine, "score"), object: "list", data, usage: inputUsageOf(usage) };
    },
  };
}

/** The inputs to compute, and a function that turns their rows into a score per pair. */
interface Run {
  readonly inputs: readonly (readonly number[])[];
  scores(rows: readonly Float32Array[]): number[];
}

type Pair = readonly [first: string, second: string];

/** Returns the pairs of texts. Throws ApiError for lists of different lengths, unless one has a single text. */
function pairsOf({ text_1, text_2 }: Body): Pair[] {
  const [first, second] = [text_1, text_2].map((texts) => [texts].flat().map((text) => text.toWellFormed()));
  const length = Math.max(first.length, second.length);
  if ([first, second].some((texts) => texts.length !== 1 && texts.length !== length)) {
    const message =
      'Invalid "text_2": must have as many texts as "text_1", unless one of them is a single text ' +
      `(got ${second.length} texts, and ${first.length} in "text_1")`;
    throw new ApiError(400, "invalid_value", message, { param: "text_2" });
  }
  const at = (texts: readonly string[], i: number) => texts[texts.length === 1 ? 0 : i];
  return Array.from({ length }, (_, i) => [at(first, i), at(second, i)]);
}

/** Returns a run in which the ranking head scores each pair. */
async function judged(engine: Engine, pairs: readonly Pair[]): Promise<Run> {
  const inputs = await paced(() => encodeAll(pairs, ([first, second]) => engine.encodePair(first, second)));
  return { inputs, scores: (rows) => rows.map(relevance) };
}

/** Returns a run that compares embeddings. A text that is in several pairs is computed once. */
async function compared(engine: Engine, pairs: readonly Pair[]): Promise<Run> {
  const distinct = [...new Set(pairs.flat())];
  const inputs = await paced(() => encodeAll(distinct, (text, i) => encodeText(engine, text, i, "text_1")));
  const places = new Map(distinct.map((text, i) => [text, i]));
  return {
    inputs,
    scores: (rows) =>
      pairs.map(([first, second]) => similarity(rows[places.get(first)!], rows[places.get(second)!])),
  };
}
