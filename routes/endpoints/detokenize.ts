import { z } from "@hono/zod-openapi";
import { endpoint } from "../shared/endpoint.ts";
import { tokenIds } from "../shared/fields.ts";
import { checkToken } from "../shared/generation.ts";

const request = z.object({ tokens: tokenIds }).openapi("DetokenizeRequest");

const answer = z.object({ content: z.string(), prompt: z.string() }).openapi("DetokenizeAnswer");

/** The text is `content` to llama-server's clients, and `prompt` to vLLM's, whose requests are the same. */
export const detokenize = endpoint({
  method: "post",
  path: "/detokenize",
  operationId: "detokenize",
  tag: "Tokenizer",
  summary: "Turn token ids into a text",
  body: request,
  example: { tokens: [71, 72] },
  answer,
  answers: "The text",
}, ({ body: { tokens } }, { engine }) => {
  for (const token of tokens) checkToken(engine, token, "tokens");
  const content = engine.tokenizer.decode(tokens, { special: true });
  return { content, prompt: content };
});
