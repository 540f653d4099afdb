import { z } from "@hono/zod-openapi";
import { type EncodeOptions, type Engine, TooManyTokens } from "../../engine/types.ts";
import { endpoint } from "../shared/endpoint.ts";
import { ApiError } from "../shared/errors.ts";
import { tokenBytes } from "../shared/logprobs.ts";

const request = z.object({
  content: z.string(),
  add_special: z.boolean().nullish().openapi({
    description: "Add what the model begins texts with; default false",
  }),
  parse_special: z.boolean().nullish().openapi({ description: "Recognise control tokens; default true" }),
  with_pieces: z.boolean().nullish().openapi({
    description: "Give each token's text, or its bytes; default false",
  }),
}).openapi("TokenizeRequest");

const piece = z.object({ id: z.number().int(), piece: z.union([z.string(), z.array(z.number().int())]) });

const answer = z.object({ tokens: z.union([z.array(z.number().int()), z.array(piece)]) })
  .openapi("TokenizeAnswer");

/** Of one text: half a second's work. */
const MAX_TOKENS = 1 << 18;

/** Other requests wait meanwhile. */
function encode({ tokenizer }: Engine, text: string, options: EncodeOptions): number[] {
  try {
    return tokenizer.encode(text, { ...options, atMost: MAX_TOKENS });
  } catch (error) {
    if (!(error instanceof TooManyTokens)) throw error;
    const message =
      `Invalid "content": must have at most ${MAX_TOKENS} tokens (got ${error.atLeast} or more); ` +
      "send it in parts";
    throw new ApiError(400, "invalid_value", message, { param: "content" });
  }
}

function pieceOf(engine: Engine, id: number): z.output<typeof piece> {
  const bytes = tokenBytes(engine, id);
  try {
    return { id, piece: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return { id, piece: [...bytes] };
  }
}

/** In llama-server's shape. */
export const tokenize = endpoint({
  method: "post",
  path: "/tokenize",
  operationId: "tokenize",
  tag: "Tokenizer",
  summary: "Turn a text into token ids",
  body: request,
  example: { content: "Hello, world!" },
  answer,
  answers: "The ids",
}, ({ body }, { engine }) => {
  const options = { addSpecial: body.add_special ?? false, parseSpecial: body.parse_special ?? true };
  const tokens = encode(engine, body.content.toWellFormed(), options);
  return { tokens: body.with_pieces ? tokens.map((id) => pieceOf(engine, id)) : tokens };
});
