import { type Engine, promptLength } from "../../engine/mod.ts";
import { messageAnswer, messageEvent } from "./answer.ts";
import { ANTHROPIC_ERRORS } from "./errors.ts";
import { messageEvents, wholeMessage } from "./events.ts";
import { formsOf, type MessagesBody, messagesRequest, planOf, thoughtsOf } from "./request.ts";
import { engineRequest, generate, type Prepared, type RunOptions } from "../generation/generation.ts";
import { hostedWarnings } from "../generation/tools.ts";
import { hostedTypes } from "./tools.ts";
import { generation } from "../generation/generation_endpoint.ts";

/** Endpoint of Anthropic's Messages API. */
export const messages = generation({
  path: "/v1/messages",
  operationId: "createMessage",
  summary: "Answer a conversation in Anthropic's format",
  request: messagesRequest,
  answer: messageAnswer,
  chunk: { name: "MessageEvent", schema: messageEvent, named: true },
  errors: ANTHROPIC_ERRORS,
  example: {
    model: "demo",
    max_tokens: 40,
    messages: [{ role: "user", content: "Who are you?" }],
    temperature: 0,
  },
  forms: formsOf,
  warnings: (body) => hostedWarnings(hostedTypes(body)),
  prepare,
});

/** Prepares a request. Throws ApiError, or the engine's error if the chat template refuses. */
async function prepare(engine: Engine, body: MessagesBody, options: RunOptions): Promise<Prepared> {
  const plan = await planOf(engine, body, options);
  const request = {
    ...engineRequest(engine, { ...body, stop: body.stop_sequences }, options),
    ...plan,
    maxTokens: body.max_tokens,
  };
  const shape = {
    promptTokens: promptLength(plan, engine.tokenizer),
    maxTokens: body.max_tokens,
    thoughts: thoughtsOf(body),
  };
  const events = (signal: AbortSignal) => messageEvents(engine, shape, generate(engine, [request], signal));
  return {
    stream: body.stream ?? false,
    answer: (signal) => wholeMessage(events(signal)),
    chunks: events,
  };
}
