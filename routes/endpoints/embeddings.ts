import { z } from "@hono/zod-openapi";
import { encodeBase64 } from "@std/encoding/base64.js";
import type { Engine } from "../../engine/types.ts";
import { checkAbility, embedAll, encodeAll, normalized } from "../shared/embedding.ts";
import { ApiError } from "../shared/errors.ts";
import { documented, isTokenIds, LIMITS, modelField, PROMPT_TEXT, TOKEN_ID } from "../shared/fields.ts";
import { checkToken, type Prepared, type RunOptions } from "../shared/generation.ts";
import { generation } from "../shared/generation_endpoint.ts";

type Input = string | string[] | number[] | number[][];

const isTextIds = (value: unknown) => isTokenIds(value) && value.length > 0;

/** Checked by hand, as `tokenIds` are. */
function isInput(value: unknown): value is Input {
  if (typeof value === "string" || isTextIds(value)) return true;
  if (!Array.isArray(value) || value.length === 0 || value.length > LIMITS.texts) return false;
  return value.every((text) => typeof text === "string") || value.every(isTextIds);
}

const input = documented(
  z.custom<Input>(isInput, {
    error:
      `Invalid "input": must be a text, an array of token ids, or an array of up to ${LIMITS.texts} of either`,
  }),
  {
    type: ["string", "array"],
    oneOf: [
      PROMPT_TEXT,
      { type: "array", items: PROMPT_TEXT, minItems: 1, maxItems: LIMITS.texts },
      { type: "array", items: TOKEN_ID, minItems: 1 },
      {
        type: "array",
        items: { type: "array", items: TOKEN_ID, minItems: 1 },
        minItems: 1,
        maxItems: LIMITS.texts,
      },
    ],
  },
);

const request = z.object({
  model: modelField,
  input,
  dimensions: documented(z.number().int().min(1).max(LIMITS.maxTokens).nullish(), {
    anyOf: [{ $ref: "#/components/schemas/Dimensions" }, { type: "null" }],
    description: "The first so many floats of each row, brought back to length 1; default all",
  }),
  encoding_format: z.enum(["float", "base64"]).nullish().openapi({
    description: "base64: of 32-bit floats, little-endian; default float",
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
  usage: z.object({ prompt_tokens: z.number().int(), total_tokens: z.number().int() }),
}).openapi("Embeddings");

export const embeddings = generation({
  path: "/v1/embeddings",
  operationId: "createEmbedding",
  tag: "Embeddings",
  summary: "A vector for each text",
  description:
    "Rows of length 1, in the order of the texts. Texts of one request and of others share the model's steps.",
  request,
  answer,
  example: { model: "demo", input: ["a fox in the snow", "a hare in the grass"] },
  forms: () => [],
  prepare,
});

async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  checkAbility(engine, "embeddings");
  const dimensions = body.dimensions ?? undefined;
  const most = engine.model.pooled?.size ?? Infinity;
  if (dimensions !== undefined && dimensions > most) {
    const message =
      `Invalid "dimensions": must be at most ${most}, as many as the model gives (got ${dimensions})`;
    throw new ApiError(400, "invalid_value", message, { param: "dimensions" });
  }
  const inputs = await encodeAll(textsOf(body.input), (text, index) => encode(engine, text, index));
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
      const { promptTokens } = usage;
      const counts = { prompt_tokens: promptTokens, total_tokens: promptTokens };
      return { object: "list", data, model: engine.model.id, usage: counts };
    },
  };
}

/** The texts of a request, each a text or token ids. */
function textsOf(input: Input): readonly (string | number[])[] {
  if (typeof input === "string") return [input];
  return typeof input[0] === "number" ? [input as number[]] : input as string[] | number[][];
}

function encode(engine: Engine, text: string | number[], index: number): readonly number[] {
  if (typeof text !== "string") {
    checkToken(engine, text.reduce((most, id) => Math.max(most, id), 0), "input");
    return text;
  }
  const ids = engine.encodePrompt(text.toWellFormed());
  if (ids.length > 0) return ids;
  const message = `Invalid "input": a text must have at least one token (text ${index} has none)`;
  throw new ApiError(400, "invalid_value", message, { param: "input" });
}

/** 32-bit floats, little-endian. */
function base64(row: Float32Array): string {
  const bytes = new Uint8Array(4 * row.length);
  const view = new DataView(bytes.buffer);
  row.forEach((x, i) => view.setFloat32(4 * i, x, true));
  return encodeBase64(bytes);
}
