import { z } from "@hono/zod-openapi";
import { checkTokenIds, documented, PROMPT_TEXT, TOKEN_ID } from "../core/fields.ts";
import { promptTokens } from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { llamaServerAnswer, llamaServerEvent } from "./answer.ts";
import { checkLlamaServer, formsOf, llamaServerFields, prepareLlamaServer } from "./request.ts";
import { paced } from "../core/paced.ts";

const prompt = documented(
  z.custom<string | number[]>(
    (value) => typeof value === "string" || Array.isArray(value) && value.length > 0,
    {
      error: "must be a text or an array of token ids; send images to /v1/chat/completions",
      abort: true,
    },
  ).superRefine((value, ctx) => {
    if (typeof value !== "string") checkTokenIds(value, ctx);
  }),
  { type: ["string", "array"], oneOf: [PROMPT_TEXT, { type: "array", items: TOKEN_ID, minItems: 1 }] },
);

const request = z.object({ ...llamaServerFields, prompt }).superRefine(checkLlamaServer)
  .openapi("LlamaServerCompletionRequest");

/** Endpoint /completion, in llama-server's format. */
export const completion = generation({
  path: "/completion",
  operationId: "createLlamaServerCompletion",
  summary: "Continue a text, or token ids, in llama-server's format",
  request,
  answer: llamaServerAnswer,
  chunk: { name: "LlamaServerEvent", schema: llamaServerEvent, withoutDone: true },
  example: { prompt: "Once upon a time", n_predict: 12, temperature: 0 },
  forms: formsOf,
  prepare: async (engine, body, options) => {
    const tokens = await paced(() => promptTokens(engine, body.prompt));
    return await prepareLlamaServer(engine, body, options, { tokens, truncated: false });
  },
});
