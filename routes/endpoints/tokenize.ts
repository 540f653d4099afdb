import { OpenAPIHono, z } from "@hono/zod-openapi";
import { type EncodeOptions, TooManyTokens } from "../../engine/types.ts";
import { readJson } from "../shared/body.ts";
import { toMessages } from "./chat_completions.ts";
import { type AppContext, type Env, jsonContent, onlyMethods } from "../shared/context.ts";
import { ApiError } from "../shared/errors.ts";
import { checkToken } from "../shared/generation.ts";
import { tokenBytes } from "../shared/logprobs.ts";
import { errorAnswer } from "../shared/answers.ts";
import { promptFields } from "../schemas/chat.ts";
import { check } from "../shared/check.ts";
import { tokenIds } from "../schemas/completions.ts";

const tokenizeRequest = z.object({
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

const tokenizeAnswer = z.object({ tokens: z.union([z.array(z.number().int()), z.array(piece)]) })
  .openapi("TokenizeAnswer");

const detokenizeRequest = z.object({ tokens: tokenIds }).openapi("DetokenizeRequest");

const detokenizeAnswer = z.object({ content: z.string() }).openapi("DetokenizeAnswer");

const templateRequest = z.object(promptFields).openapi("ApplyTemplateRequest");

const templateAnswer = z.object({ prompt: z.string() }).openapi("ApplyTemplateAnswer");

/** Of one text: half a second's work. */
const MAX_TOKENS = 1 << 18;

/** llama-server's endpoints around the tokenizer. */
export function tokenizeRoutes(context: AppContext) {
  const { engine } = context;
  const app = new OpenAPIHono<Env>();

  function post<Request extends z.ZodType, Answer extends z.ZodType>(
    path: string,
    summary: string,
    request: Request,
    answer: Answer,
    handle: (body: z.output<Request>) => z.output<Answer>,
  ): void {
    app.openAPIRegistry.registerPath({
      method: "post",
      path,
      summary,
      request: { body: { required: true, ...jsonContent(request) } },
      responses: {
        200: { description: "The answer", ...jsonContent(answer) },
        400: { description: "A wrong field", ...jsonContent(errorAnswer) },
      },
    });
    app.post(path, async (c) => {
      return Response.json(handle(check(request, await readJson(c.req.raw, context.limits))));
    });
    app.all(path, onlyMethods("POST"));
  }

  function pieceOf(id: number): z.output<typeof piece> {
    const bytes = tokenBytes(engine, id);
    try {
      return { id, piece: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
    } catch {
      return { id, piece: [...bytes] };
    }
  }

  /** Other requests wait meanwhile. */
  function encode(text: string, options: EncodeOptions): number[] {
    try {
      return engine.tokenizer.encode(text, { ...options, atMost: MAX_TOKENS });
    } catch (error) {
      if (!(error instanceof TooManyTokens)) throw error;
      const message = `Invalid "content": found at least ${error.atLeast} tokens, allowed is ${MAX_TOKENS}`;
      throw new ApiError(400, "invalid_value", message, { param: "content" });
    }
  }

  post("/tokenize", "Turn a text into token ids", tokenizeRequest, tokenizeAnswer, (body) => {
    const options = { addSpecial: body.add_special ?? false, parseSpecial: body.parse_special ?? true };
    const tokens = encode(body.content.toWellFormed(), options);
    return { tokens: body.with_pieces ? tokens.map(pieceOf) : tokens };
  });
  post("/detokenize", "Turn token ids into a text", detokenizeRequest, detokenizeAnswer, ({ tokens }) => {
    for (const token of tokens) checkToken(engine, token, "tokens");
    return { content: engine.tokenizer.decode(tokens, { special: true }) };
  });
  post("/apply-template", "Show the prompt of a conversation", templateRequest, templateAnswer, (body) => {
    const options = { addGenerationPrompt: true, variables: body.chat_template_kwargs ?? {} };
    return { prompt: engine.chatTemplate.render(toMessages(body.messages), options) };
  });
  return app;
}
