import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { encodeAll, relevance, similarity } from "../../engine/answers/rows.ts";
import { boundedArray, LIMITS, modelField } from "../core/fields.ts";
import { ApiError } from "../core/errors.ts";
import { embedAll, encodeText } from "../generation/embedding.ts";
import { answerHead } from "../generation/answers.ts";
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
    "One text is compared with each text of the other field; two arrays of the same length, text by text.",
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
  usage: z.object({ prompt_tokens: z.number().int(), total_tokens: z.number().int() }),
}).openapi("Scores");

/** Endpoints for scoring pairs of texts, in vLLM's format, under both of its paths. */
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
      "A model with a ranking head judges the pairs as for /v1/rerank. With another model, a score is the cosine of the " +
      "texts' embeddings.",
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
      const { rows, usage: { promptTokens } } = await embedAll(engine, run.inputs, options, signal);
      const data = run.scores(rows).map((score, index) => ({ index, object: "score", score }));
      const usage = { prompt_tokens: promptTokens, total_tokens: promptTokens };
      return { ...headOf(engine, "score"), object: "list", data, usage };
    },
  };
}

/** Texts to compute, and the scores of their rows. */
interface Run {
  readonly inputs: readonly (readonly number[])[];
  scores(rows: readonly Float32Array[]): number[];
}

type Pair = readonly [first: string, second: string];

/** Pairs the texts. Throws ApiError for lists of different lengths. */
function pairsOf({ text_1, text_2 }: Body): Pair[] {
  const [first, second] = [text_1, text_2].map((texts) => [texts].flat().map((text) => text.toWellFormed()));
  const length = Math.max(first.length, second.length);
  if ([first, second].some((texts) => texts.length !== 1 && texts.length !== length)) {
    const message =
      'Invalid "text_2": must be one text, or as many as "text_1" has, unless "text_1" is one text ' +
      `(got ${first.length} and ${second.length})`;
    throw new ApiError(400, "invalid_value", message, { param: "text_2" });
  }
  const at = (texts: readonly string[], i: number) => texts[texts.length === 1 ? 0 : i];
  return Array.from({ length }, (_, i) => [at(first, i), at(second, i)]);
}

/** Lets a ranking head judge each pair. */
async function judged(engine: Engine, pairs: readonly Pair[]): Promise<Run> {
  const inputs = await paced(() => encodeAll(pairs, ([first, second]) => engine.encodePair(first, second)));
  return { inputs, scores: (rows) => rows.map(relevance) };
}

/** Compares embeddings. A text that stands in several pairs is computed once. */
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
