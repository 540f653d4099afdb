import { z } from "@hono/zod-openapi";
import {
  type EncodeOptions,
  type Engine,
  finish,
  type Paced,
  STEPS_PER_OFFER,
  TooManyTokens,
} from "../../engine/mod.ts";
import { endpoint } from "../core/endpoint.ts";
import { ApiError } from "../core/errors.ts";
import { modelField, refuse } from "../core/fields.ts";
import { tokenBytes } from "../generation/logprobs.ts";
import { MODEL_REFUSALS, withModel } from "../core/models.ts";
import { paced } from "../core/paced.ts";

const request = z.object({
  model: modelField,
  content: z.string().optional(),
  prompt: z.string().optional().openapi({ description: "vLLM's name for content" }),
  add_special_tokens: z.boolean().nullish().openapi({
    description:
      "For `prompt`: adds the tokens that the model expects at the beginning of a text, such as BOS; default true",
  }),
  add_special: z.boolean().nullish().openapi({
    description:
      "For `content`: adds the tokens that the model expects at the beginning of a text, such as BOS; default false",
  }),
  parse_special: z.boolean().nullish().openapi({ description: "Recognise control tokens; default true" }),
  with_pieces: z.boolean().nullish().openapi({
    description: "Return each token's text or bytes too; default false",
  }),
}).superRefine(({ content, prompt }, ctx) => {
  if (content === undefined && prompt === undefined) {
    refuse(ctx, ["content"], "missing_required_parameter", 'Missing required parameter "content"');
  } else if (content !== undefined && prompt !== undefined) {
    refuse(
      ctx,
      ["prompt"],
      "invalid_value",
      'Invalid "prompt": must not be given together with "content"; give one of them',
    );
  }
}).openapi("TokenizeRequest", { oneOf: [{ required: ["content"] }, { required: ["prompt"] }] });

const piece = z.object({ id: z.number().int(), piece: z.union([z.string(), z.array(z.number().int())]) });

const answer = z.object({
  tokens: z.union([z.array(z.number().int()), z.array(piece)]),
  count: z.number().int().optional().openapi({ description: "With prompt" }),
  max_model_len: z.number().int().optional().openapi({
    description: "The context length in tokens, for requests with the field prompt",
  }),
})
  .openapi("TokenizeAnswer");

/** Maximum tokens of one text to tokenize: about half a second of work. */
const MAX_TOKENS = 1 << 18;

function encode({ tokenizer }: Engine, field: string, text: string, options: EncodeOptions): number[] {
  try {
    return tokenizer.encode(text, { ...options, atMost: MAX_TOKENS });
  } catch (error) {
    if (!(error instanceof TooManyTokens)) throw error;
    const message =
      `Invalid "${field}": must have at most ${MAX_TOKENS} tokens (got ${error.atLeast} or more); ` +
      "send it in parts";
    throw new ApiError(400, "invalid_value", message, { param: field });
  }
}

function* piecesOf(engine: Engine, ids: readonly number[]): Paced<z.output<typeof piece>[]> {
  const pieces: z.output<typeof piece>[] = [];
  for (const id of ids) {
    if (pieces.push(pieceOf(engine, id)) % STEPS_PER_OFFER === 0) yield;
  }
  return pieces;
}

function pieceOf(engine: Engine, id: number): z.output<typeof piece> {
  const bytes = tokenBytes(engine, id);
  try {
    return { id, piece: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return { id, piece: [...bytes] };
  }
}

/** Endpoint /tokenize, in llama-server's format; with `prompt` in vLLM's, which lm-eval's remote tokenizer uses. */
export const tokenize = endpoint(
  {
    method: "post",
    path: "/tokenize",
    operationId: "tokenize",
    tag: "Tokenizer",
    summary: "Tokenize a text",
    body: request,
    example: { content: "Hello, world!" },
    answer,
    answers: "The ids",
    refusals: MODEL_REFUSALS,
  },
  ({ body, raw }, { models }) =>
    withModel(models, body.model, raw, (engine) => paced(() => tokensOf(engine, body))),
);

function tokensOf(engine: Engine, body: z.output<typeof request>): z.output<typeof answer> {
  const { content, prompt, with_pieces, parse_special } = body;
  const addSpecial = prompt === undefined ? body.add_special ?? false : body.add_special_tokens ?? true;
  const text = (prompt ?? content)!.toWellFormed();
  const field = prompt === undefined ? "content" : "prompt";
  const ids = encode(engine, field, text, { addSpecial, parseSpecial: parse_special ?? true });
  const tokens = with_pieces ? finish(piecesOf(engine, ids)) : ids;
  return prompt === undefined
    ? { tokens }
    : { tokens, count: ids.length, max_model_len: engine.model.contextLength };
}
