import { z } from "@hono/zod-openapi";
import { encodeBase64 } from "@std/encoding/base64.js";
import type { Engine } from "../../engine/mod.ts";
import { encodeAll, normalized } from "../../engine/answers/rows.ts";
import { inputUsage, inputUsageOf } from "../generation/answers.ts";
import { embedAll, encodeText } from "../generation/embedding.ts";
import { ApiError } from "../core/errors.ts";
import { documented, LIMITS, modelField } from "../core/fields.ts";
import type { Prepared, RunOptions } from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { each, textsOrIds } from "../generation/texts_or_ids.ts";
import { paced } from "../core/paced.ts";

const request = z.object({
  model: modelField,
  input: textsOrIds(LIMITS.texts),
  dimensions: documented(z.number().int().min(1).max(LIMITS.maxTokens).nullish(), {
    anyOf: [{ $ref: "#/components/schemas/Dimensions" }, { type: "null" }],
    description:
      "Number of leading floats to keep of each row, which is then scaled to length 1; default all",
  }),
  encoding_format: z.enum(["float", "base64"]).nullish().openapi({
    description: "base64: little-endian 32-bit floats; default float",
  }),
}).openapi("EmbeddingRequest");

type Body = z.output<typeof request>;

const answer = z.object({
  object: z.literal("list"),
  data: z.array(z.object({
    object: z.literal("embedding"),
    index: z.number().int(),
    embedding: z.union([z.array(z.number()), z.string()]),
  })),
  model: z.string(),
  usage: inputUsage,
}).openapi("Embeddings");

export const embeddings = generation({
  path: "/v1/embeddings",
  operationId: "createEmbedding",
  tag: "Embeddings",
  ability: "embeddings",
  summary: "A vector for each text",
  description:
    "Vectors of length 1, in the order of the texts. Texts of one request and of others share the model's steps.",
  request,
  answer,
  example: { model: "demo", input: ["a fox in the snow", "a hare in the grass"] },
  forms: () => [],
  prepare,
});

async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const dimensions = body.dimensions ?? undefined;
  const most = engine.model.pooled?.size ?? Infinity;
  if (dimensions !== undefined && dimensions > most) {
    const message =
      `Invalid "dimensions": must be at most ${most}, the vector length of this model (got ${dimensions})`;
    throw new ApiError(400, "invalid_value", message, { param: "dimensions" });
  }
  const inputs = await paced(() =>
    encodeAll(each(body.input), (text, index) => encodeText(engine, text, index))
  );
  const shown = body.encoding_format === "base64" ? base64 : (row: Float32Array) => Array.from(row);
  return {
    stream: false,
    answer: async (signal) => {
      const { rows, usage } = await embedAll(engine, inputs, options, signal);
      const data = rows.map((row, index) => ({
        object: "embedding",
        index,
        embedding: shown(normalized(row, dimensions)),
      }));
      return { object: "list", data, model: engine.model.id, usage: inputUsageOf(usage) };
    },
  };
}

/** Returns a row as base64 of little-endian 32-bit floats. */
function base64(row: Float32Array): string {
  const bytes = new Uint8Array(4 * row.length);
  const view = new DataView(bytes.buffer);
  row.forEach((x, i) => view.setFloat32(4 * i, x, true));
  return encodeBase64(bytes);
}
