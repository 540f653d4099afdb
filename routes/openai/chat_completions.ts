import type { Engine } from "../../engine/mod.ts";
import { chatAnswer, chatChunk, chatChunks, type ChatShape, wholeChat } from "../generation/chat_answer.ts";
import { type ChatBody, chatForms, chatPlan, chatRequest } from "../generation/chat_request.ts";
import {
  answersTo,
  engineRequest,
  generate,
  type Prepared,
  type RunOptions,
} from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { toolsOf } from "../generation/tools.ts";

export const chatCompletions = generation({
  path: "/v1/chat/completions",
  operationId: "createChatCompletion",
  summary: "Answer a conversation",
  request: chatRequest,
  answer: chatAnswer,
  chunk: { name: "ChatCompletionChunk", schema: chatChunk },
  example: {
    model: "demo",
    messages: [{ role: "user", content: "Who are you?" }],
    max_tokens: 40,
    temperature: 0,
  },
  forms: chatForms,
  prepare,
});

/** Prepares a chat. Throws ApiError, or the engine's error if the chat template refuses. */
async function prepare(engine: Engine, body: ChatBody, options: RunOptions): Promise<Prepared> {
  const n = body.n ?? 1;
  const tools = toolsOf(body);
  const plan = await chatPlan(engine, body, options);
  const requests = answersTo({
    ...engineRequest(engine, body, options),
    ...plan,
    maxTokens: body.max_completion_tokens ?? body.max_tokens ?? undefined,
    logprobs: body.logprobs ? body.top_logprobs ?? 0 : undefined,
  }, n);
  const shape: ChatShape = {
    n,
    logprobs: body.logprobs ?? false,
    calls: tools && (tools.older ? "function_call" : "tool_calls"),
    withUsage: body.stream_options?.include_usage ?? false,
    withProgress: body.return_progress ?? false,
  };
  const run = (signal: AbortSignal) => generate(engine, requests, signal);
  return {
    stream: body.stream ?? false,
    answer: (signal) => wholeChat(engine, shape, run(signal)),
    chunks: (signal) => chatChunks(engine, shape, run(signal)),
  };
}
