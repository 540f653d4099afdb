import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { encodeAll, probabilities } from "../../engine/answers/rows.ts";
import { LIMITS, modelField } from "../core/fields.ts";
import { answerHead, inputUsage, inputUsageOf } from "../generation/answers.ts";
import { embedAll, encodeText, labelsOf } from "../generation/embedding.ts";
import { headOf, type Prepared, type RunOptions } from "../generation/generation.ts";
import { type Generation, generation } from "../generation/generation_endpoint.ts";
import { each, textsOrIds } from "../generation/texts_or_ids.ts";
import { paced } from "../core/paced.ts";

const request = z.object({ model: modelField, input: textsOrIds(LIMITS.texts) }).openapi(
  "ClassificationRequest",
);

type Body = z.output<typeof request>;

const answer = z.object({
  ...answerHead,
  object: z.literal("list"),
  data: z.array(z.object({
    index: z.number().int(),
    label: z.string().openapi({ description: "The most probable label" }),
    probs: z.array(z.number()).openapi({ description: "The probability of each label" }),
    num_classes: z.number().int(),
    labels: z.array(z.string()).openapi({ description: "The labels in the order of `probs`" }),
  })),
  usage: inputUsage,
}).openapi("Classifications");

/** Endpoints that classify texts, in vLLM's format, with and without `/v1` in the path. */
export const CLASSIFICATIONS: readonly Generation[] = [
  classification("/v1/classify", "createClassification"),
  classification("/classify", "createClassificationWithoutVersion"),
];

function classification(path: string, operationId: string): Generation {
  return generation({
    path,
    operationId,
    tag: "Embeddings",
    ability: "classification",
    summary: "The probabilities of a text's labels",
    description: "The model must have a classification head (pooling_type rank in its file).",
    request,
    answer,
    example: { model: "demo", input: ["a fox in the snow", "a stone"] },
    forms: () => [],
    prepare,
  });
}

async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const inputs = await paced(() =>
    encodeAll(each(body.input), (text, index) => encodeText(engine, text, index))
  );
  return {
    stream: false,
    answer: async (signal) => {
      const { rows, usage } = await embedAll(engine, inputs, options, signal);
      const labels = labelsOf(engine);
      const data = rows.map((logits, index) => {
        const probs = probabilities(logits);
        const label = labels[probs.indexOf(Math.max(...probs))];
        return { index, label, probs, num_classes: probs.length, labels };
      });
      return { ...headOf(engine, "classify"), object: "list", data, usage: inputUsageOf(usage) };
    },
  };
}
