import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { encodeAll, probabilities, sigmoid } from "../../engine/answers/rows.ts";
import { boundedArray, LIMITS, modelField } from "../core/fields.ts";
import { embedAll, encodeText, labelsOf } from "../generation/embedding.ts";
import { headOf, type Prepared, type RunOptions } from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { paced } from "../core/paced.ts";

const part = z.object({ type: z.literal("text"), text: z.string() });
const input = z.union([
  z.string(),
  boundedArray(z.string(), 1, LIMITS.texts),
  boundedArray(part, 1, LIMITS.texts),
], { error: `must be a text, or an array of 1 to ${LIMITS.texts} texts or text parts` });

const request = z.object({ model: modelField, input }).openapi("ModerationRequest");

type Body = z.output<typeof request>;

const answer = z.object({
  id: z.string(),
  model: z.string(),
  results: z.array(z.object({
    flagged: z.boolean().openapi({ description: "Whether any category applies" }),
    categories: z.record(z.string(), z.boolean()),
    category_scores: z.record(z.string(), z.number()),
    category_applied_input_types: z.record(z.string(), z.array(z.literal("text"))),
  })),
}).openapi("Moderations");

/** Labels that classifiers give to harmless texts, in lower case and without punctuation. */
const HARMLESS = new Set(
  "safe ok okay none neutral normal clean benign harmless appropriate acceptable sfw nontoxic nothate nothatespeech noharm"
    .split(" "),
);

/** Minimum probability at which a category applies. */
const THRESHOLD = 0.5;

/**
 * OpenAI's moderation endpoint for any classifier. The categories are the labels of the model's head, except those that
 * mean harmless.
 */
export const moderations = generation({
  path: "/v1/moderations",
  operationId: "createModeration",
  tag: "Embeddings",
  ability: "classification",
  summary: "Say which categories of a classifier apply to texts",
  description:
    "The model must have a classification head (pooling_type rank in its file). The categories are the head's labels, not " +
    "OpenAI's. If one of them means harmless (such as `safe` or `neutral`), the labels exclude each other. Otherwise each " +
    "label is judged alone.",
  request,
  answer,
  example: { model: "demo", input: ["a fox in the snow", "a stone"] },
  forms: () => [],
  prepare,
});

async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const texts = [body.input].flat().map((text) => typeof text === "string" ? text : text.text);
  const inputs = await paced(() => encodeAll(texts, (text, index) => encodeText(engine, text, index)));
  return {
    stream: false,
    answer: async (signal) => {
      const { rows } = await embedAll(engine, inputs, options, signal);
      const { id, model } = headOf(engine, "modr");
      return { id, model, results: rows.map((logits) => judge(labelsOf(engine), logits)) };
    },
  };
}

function isHarmless(label: string): boolean {
  return HARMLESS.has(label.toLowerCase().replace(/[^a-z]/g, ""));
}

/** Returns the result for a text from the logits of its labels. */
function judge(labels: readonly string[], logits: Float32Array) {
  const excluding = labels.some(isHarmless);
  const scores = excluding ? probabilities(logits) : Array.from(logits, sigmoid);
  const found = labels.flatMap((label, i) => isHarmless(label) ? [] : [[label, scores[i]] as const]);
  const each = <T>(value: (score: number) => T) =>
    Object.fromEntries(found.map(([label, score]) => [label, value(score)]));
  return {
    flagged: found.some(([, score]) => score >= THRESHOLD),
    categories: each((score) => score >= THRESHOLD),
    category_scores: each((score) => score),
    category_applied_input_types: each(() => ["text"]),
  };
}
