import { z } from "@hono/zod-openapi";
import { DEFAULT_SAMPLING, type Engine, promptLength } from "../../engine/mod.ts";
import type { Piece } from "../../engine/answers/pieces.ts";
import {
  ANY_OBJECT,
  type AskedForm,
  checkForms,
  constraintFields,
  formOf,
  jsonForm,
  jsonSchema,
} from "../generation/constraints.ts";
import { endpoint } from "../core/endpoint.ts";
import { ApiError } from "../core/errors.ts";
import {
  boundedArray,
  documented,
  generationFields,
  LIMITS,
  metadata,
  refuse,
  special,
  text,
} from "../core/fields.ts";
import {
  checkForm,
  engineRequest,
  generate,
  type Prepared,
  type RunOptions,
} from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { type ImageSender, imageSender, readImages, type SeenPlan } from "../generation/images.ts";
import { promptFields, toMessages } from "../generation/messages.ts";
import { hostedWarnings } from "../generation/tools.ts";
import { MODEL_REFUSALS, withModel } from "../core/models.ts";
import { reasoningFields, reasoningOf } from "../generation/reasoning.ts";
import {
  type ResponseAnswer,
  responseAnswer,
  responseEvent,
  type ResponseSettings,
} from "./responses/answer.ts";
import { type CalledTool, joinedName } from "./responses/called_tool.ts";
import { type Conversation, conversationOf, refuseStored, storedItems } from "./responses/history.ts";
import { inputField, toChat } from "./responses/items.ts";
import {
  checkResponseTools,
  clientTools,
  hostedTypes,
  responseToolFields,
  responseToolForms,
  responseTools,
  toldTools,
} from "./responses/tools.ts";
import { type ResponseEvent, ResponseWriter } from "./responses/writer.ts";
import { paced } from "../core/paced.ts";

/* Endpoints of OpenAI's Responses API. */

const { n: _n, lora: _lora, max_tokens, stream_options: _options, return_progress: _progress, ...sampling } =
  generationFields;
const { response_format: _format, ...forms } = constraintFields;

const format = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object") }),
  z.object({
    type: z.literal("json_schema"),
    name: text(1, 256),
    description: z.string().nullish(),
    strict: z.boolean().nullish().openapi({
      description:
        "Whether objects may have only the properties that the schema lists. The schema is always enforced",
    }),
    schema: jsonSchema,
  }),
], { error: 'must be "text", "json_object" or "json_schema"' });

const LOGPROBS = "message.output_text.logprobs";

const otherName = documented(
  z.custom<null>((value) => value === null, {
    error: 'must be left out: this endpoint has "text": {"format": …}',
  }).optional(),
  { type: "null", description: "Not supported; use text.format" },
);

const UNSUPPORTED = { type: "null", description: "Not supported" };

const request = z.object({
  ...sampling,
  ...forms,
  ...responseToolFields,
  input: inputField,
  instructions: z.string().nullish(),
  max_output_tokens: max_tokens,
  reasoning: z.object({
    effort: reasoningFields.reasoning_effort,
    summary: z.enum(["auto", "concise", "detailed"]).nullish().openapi({
      description:
        "With any value, the whole thinking is returned as the summary; without a value, as reasoning text",
    }),
  }).nullish(),
  thinking_budget_tokens: reasoningFields.thinking_budget_tokens,
  chat_template_kwargs: promptFields.chat_template_kwargs,
  text: z.object({ format: format.nullish() }).nullish(),
  top_logprobs: z.number().int().min(0).max(LIMITS.topLogprobs).nullish(),
  include: boundedArray(z.string(), 0, LIMITS.included).nullish().openapi({
    description: `${LOGPROBS}; others change nothing`,
  }),
  metadata,
  store: z.boolean().nullish().openapi({ description: "Whether to store the answer; default true" }),
  previous_response_id: text(1, 256).nullish().openapi({
    description:
      "A stored response that this one continues: its items come before `input`, without its instructions",
  }),
  response_format: otherName,
  conversation: special(UNSUPPORTED),
  prompt: special(UNSUPPORTED),
  background: special({ enum: [false, null], description: "Not supported" }),
  truncation: special({ enum: ["disabled", null], description: "Prompts are never truncated" }),
}).superRefine((body, ctx) => {
  checkForms(body, ctx, textForm(body));
  checkResponseTools(body, ctx);
  checkUnsupported(body, ctx);
}).openapi("ResponseRequest");

type Body = z.output<typeof request>;

/** Refuses request fields that would silently change the answer. */
function checkUnsupported(body: Record<string, unknown>, ctx: z.RefinementCtx): void {
  const isGiven = (name: string) => body[name] !== undefined && body[name] !== null;
  for (const name of ["conversation", "prompt"]) {
    if (!isGiven(name)) continue;
    const message =
      `Unsupported parameter "${name}": use "previous_response_id", or send all earlier items in "input"`;
    refuse(ctx, [name], "unsupported_parameter", message);
  }
  if (isGiven("background") && body.background !== false) {
    const message =
      'Unsupported "background": true: answers are given at once; use /v1/batches for work in the background';
    refuse(ctx, ["background"], "unsupported_parameter", message);
  }
  if (isGiven("truncation") && body.truncation !== "disabled") {
    const message = 'Unsupported "truncation": must be "disabled": prompts are never truncated here';
    refuse(ctx, ["truncation"], "unsupported_parameter", message);
  }
}

export const responses = generation({
  path: "/v1/responses",
  operationId: "createResponse",
  summary: "Answer an input",
  request,
  answer: responseAnswer,
  chunk: { name: "ResponseStreamEvent", schema: responseEvent, named: true },
  example: { model: "demo", input: "Who are you?", max_output_tokens: 40, temperature: 0 },
  forms(body) {
    refuseStored(body, "lines of batches cannot use stored responses", 'send all earlier items in "input"');
    return formsOf(body);
  },
  warnings: (body) => hostedWarnings(hostedTypes(body)),
  prepare,
});

export const responseTokens = endpoint(
  {
    method: "post",
    path: "/v1/responses/input_tokens",
    operationId: "countResponseInputTokens",
    tag: "Generation",
    summary: "Count the tokens of an input",
    description: "Takes the same body as /v1/responses, because tools and schemas are part of some prompts.",
    body: request,
    example: { model: "demo", input: "Who are you?" },
    answer: z.object({ object: z.literal("response.input_tokens"), input_tokens: z.number().int() })
      .openapi("ResponseInputTokens"),
    answers: "The count",
    refusals: MODEL_REFUSALS,
  },
  (incoming, context) => {
    const { body, raw, owner } = incoming;
    return withModel(context.models, body.model, raw, async (engine) => {
      const items = await conversationOf(body, { responses: context.responses.of(owner) });
      const plan = await planOf(engine, body, items, imageSender(incoming, context));
      return {
        object: "response.input_tokens" as const,
        input_tokens: promptLength(plan, engine.tokenizer),
      };
    });
  },
);

/** Prepares a request of the Responses API. Throws ApiError. */
async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const items = await conversationOf(body, options);
  const { input } = items;
  const plan = await planOf(engine, body, items, options);
  await checkForm(engine, plan.constraint, formsOf(body), options);
  const logprobs = body.include?.includes(LOGPROBS) ?? false;
  const asked = {
    ...engineRequest(engine, body, options),
    ...plan,
    maxTokens: body.max_output_tokens ?? undefined,
    logprobs: logprobs ? body.top_logprobs ?? 0 : undefined,
  };
  const summary = (body.reasoning?.summary ?? null) !== null;
  const tools = new Map(clientTools(body).map((tool) => [tool.tool.name, tool]));
  const responses = body.store === false ? undefined : options.responses;
  const settings = settingsOf(body, responses !== undefined);
  const writer = new ResponseWriter(engine, { settings, logprobs, summary, tools });
  /** Stores the response, and sets its field `store` to whether it was stored. */
  const store = async (response: ResponseAnswer) => {
    if (!responses) return;
    const { output, ...head } = response;
    const previous = response.previous_response_id;
    const stored = { previous, head, input: storedItems(input, writer.ids), output };
    response.store = await responses.save(response.id, stored);
  };
  const pieces = (signal: AbortSignal) => generate(engine, [asked], signal);
  return {
    stream: body.stream ?? false,
    async answer(signal) {
      for await (const piece of pieces(signal)) for (const _ of writer.write(piece));
      const { response } = writer;
      await store(response);
      return response;
    },
    chunks: (signal) => streamed(writer, pieces(signal), store, signal),
    failure(error) {
      const { isRunning } = writer;
      const events = [...writer.fail(error)];
      if (isRunning) store(writer.response);
      return events;
    },
  };
}

/**
 * Yields the events of an answer. The answer is stored before the last event, so that the client can continue it at
 * once.
 */
async function* streamed(
  writer: ResponseWriter,
  pieces: AsyncIterable<Piece>,
  store: (response: ResponseAnswer) => Promise<void>,
  signal: AbortSignal,
): AsyncGenerator<ResponseEvent> {
  try {
    for await (const piece of pieces) {
      for (const event of writer.write(piece)) {
        if (event.response && !writer.isRunning) await store(event.response as ResponseAnswer);
        yield event;
      }
    }
  } finally {
    if (signal.aborted && writer.isRunning) await store(writer.cancelled());
  }
}

/** Returns the prompt and the form of its answer. Throws ApiError, or the engine's error for its tools. */
async function planOf(
  engine: Engine,
  body: Body,
  { earlier, input }: Conversation,
  sender: ImageSender,
): Promise<SeenPlan> {
  const variables = body.chat_template_kwargs ?? {};
  const thinking = {
    reasoning_effort: body.reasoning?.effort,
    thinking_budget_tokens: body.thinking_budget_tokens,
  };
  const chat = await paced(() =>
    toChat([...earlier, ...input], body.instructions, flatNames(body), earlier.length)
  );
  const { messages, images } = await readImages(engine, chat, sender);
  try {
    const plan = await paced(() =>
      engine.chatForm.plan({
        messages: toMessages(messages),
        ...responseTools(body),
        constraint: (textForm(body) ?? formOf(body))?.constraint,
        ...reasoningOf(thinking, variables),
        variables,
      })
    );
    return { ...plan, images };
  } catch (error) {
    if (!(error instanceof Error) || error.name !== "ChatTemplateError") throw error;
    throw new ApiError(400, "chat_template_error", error.message, { param: "input" });
  }
}

/** Returns the function that gives tools the names that the model reads, also tools that the request no longer has. */
function flatNames(body: Body): (called: CalledTool) => string {
  const key = ({ type, name, namespace = "" }: CalledTool) => `${type} ${namespace} ${name}`;
  const names = new Map(clientTools(body).map((tool) => [key(tool), tool.tool.name]));
  return (called) => names.get(key(called)) ?? joinedName(called.name, called.namespace);
}

function formsOf(body: Body): AskedForm[] {
  return [textForm(body) ?? formOf(body) ?? [], responseToolForms(body)].flat();
}

/** Returns the form of the answer that OpenAI's `text` field requests. */
function textForm({ text }: Pick<Body, "text">): AskedForm | undefined {
  const format = text?.format;
  if (format?.type === "json_object") return { param: "text.format", constraint: ANY_OBJECT };
  if (format?.type !== "json_schema") return undefined;
  return { param: "text.format.schema", constraint: jsonForm(format.schema, format.strict === true) };
}

function settingsOf(body: Body, store: boolean): ResponseSettings {
  return {
    instructions: body.instructions ?? null,
    max_output_tokens: body.max_output_tokens ?? null,
    metadata: body.metadata ?? {},
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
    temperature: body.temperature ?? DEFAULT_SAMPLING.temperature,
    text: { format: body.text?.format ?? { type: "text" } },
    tool_choice: body.tool_choice ?? "auto",
    tools: toldTools(body),
    top_logprobs: body.top_logprobs ?? 0,
    top_p: body.top_p ?? DEFAULT_SAMPLING.topP,
    previous_response_id: body.previous_response_id ?? null,
    store,
  };
}
