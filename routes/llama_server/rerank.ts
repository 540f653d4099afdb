import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { encodeAll, relevance } from "../../engine/answers/rows.ts";
import { inputUsage, inputUsageOf } from "../generation/answers.ts";
import { embedAll } from "../generation/embedding.ts";
import { boundedArray, LIMITS, modelField } from "../core/fields.ts";
import type { Prepared, RunOptions } from "../generation/generation.ts";
import { type Generation, generation } from "../generation/generation_endpoint.ts";
import { paced } from "../core/paced.ts";

const document = z.union([z.string(), z.object({ text: z.string() })], {
  error: "must be a text, or an object with a text as its `text`",
});

const request = z.object({
  model: modelField,
  query: z.string(),
  documents: boundedArray(document, 1, LIMITS.texts),
  top_n: z.number().int().min(1).max(LIMITS.maxTokens).nullish().openapi({
    description: "Maximum number of results, best first; default all",
  }),
  return_documents: z.boolean().nullish().openapi({ description: "Return the texts too; default false" }),
}).openapi("RerankRequest");

type Body = z.output<typeof request>;

const answer = z.object({
  object: z.literal("list"),
  model: z.string(),
  results: z.array(z.object({
    index: z.number().int().openapi({ description: "Index of the document in the request" }),
    relevance_score: z.number().openapi({ description: "From 0 to 1" }),
    document: z.object({ text: z.string() }).optional(),
  })),
  usage: inputUsage,
}).openapi("Rerank");

/** Endpoints for reranking, in llama-server's and Jina's formats combined, under both of their paths. */
export const RERANKS: readonly Generation[] = [
  rerank("/v1/rerank", "createRerank"),
  rerank("/rerank", "createRerankWithoutVersion"),
];

function rerank(path: string, operationId: string): Generation {
  return generation({
    path,
    operationId,
    tag: "Embeddings",
    ability: "ranking",
    summary: "Rank documents by their relevance to a query",
    description: "Best first. The model must have a ranking head (pooling_type rank in its file).",
    request,
    answer,
    example: { query: "animals of the snow", documents: ["a fox in the snow", "a stone"], top_n: 1 },
    forms: () => [],
    prepare,
  });
}

async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const query = body.query.toWellFormed();
  const documents = body.documents.map((document) => typeof document === "string" ? document : document.text);
  const inputs = await paced(() =>
    encodeAll(documents, (text) => engine.encodePair(query, text.toWellFormed()))
  );
  return {
    stream: false,
    answer: async (signal) => {
      const { rows, usage } = await embedAll(engine, inputs, options, signal);
      const results = rows
        .map((logits, index) => ({
          index,
          relevance_score: relevance(logits),
          ...body.return_documents ? { document: { text: documents[index] } } : {},
        }))
        .sort((a, b) => b.relevance_score - a.relevance_score || a.index - b.index)
        .slice(0, body.top_n ?? rows.length);
      return { object: "list", model: engine.model.id, results, usage: inputUsageOf(usage) };
    },
  };
}
