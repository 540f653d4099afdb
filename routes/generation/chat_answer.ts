import { z } from "@hono/zod-openapi";
import type { ChatPart, Engine, Usage } from "../../engine/mod.ts";
import {
  answerHead,
  chatLogprobs as logprobsSchema,
  finishReason,
  progressBody,
  promptProgress,
  usage,
} from "./answers.ts";
import { headOf, usageOf } from "./generation.ts";
import { chatLogprobs } from "./logprobs.ts";
import type { Piece, ScoredToken } from "../../engine/answers/pieces.ts";

const calledFunction = z.object({
  name: z.string(),
  arguments: z.string().openapi({ description: "JSON, which follows the tool's schema" }),
});

const toolCall = z.object({ id: z.string(), type: z.literal("function"), function: calledFunction })
  .openapi("ToolCall");

const chatFinish = z.enum([...finishReason.options, "tool_calls", "function_call"]);

const message = z.object({
  role: z.literal("assistant"),
  content: z.string().nullable().openapi({ description: "null if there are only calls" }),
  refusal: z.null(),
  reasoning_content: z.string().optional(),
  tool_calls: z.array(toolCall).optional(),
  function_call: calledFunction.optional(),
});

export const chatAnswer = z.object({
  ...answerHead,
  object: z.literal("chat.completion"),
  choices: z.array(z.object({
    index: z.number().int(),
    message,
    logprobs: logprobsSchema.nullable(),
    finish_reason: chatFinish,
  })),
  usage,
}).openapi("ChatCompletion");

const callDelta = z.object({
  index: z.number().int(),
  id: z.string().optional(),
  type: z.literal("function").optional(),
  function: calledFunction.partial(),
});

export const chatChunk = z.object({
  ...answerHead,
  object: z.literal("chat.completion.chunk"),
  choices: z.array(z.object({
    index: z.number().int(),
    delta: z.object({
      role: z.literal("assistant").optional(),
      content: z.string().nullable().optional(),
      refusal: z.null().optional(),
      reasoning_content: z.string().optional(),
      tool_calls: z.array(callDelta).optional(),
      function_call: calledFunction.partial().optional(),
    }),
    logprobs: logprobsSchema.nullable(),
    finish_reason: chatFinish.nullable(),
  })),
  usage: usage.nullable().optional(),
  prompt_progress: promptProgress.optional(),
});

type Answer = z.output<typeof chatAnswer>;
type Message = z.output<typeof message>;
type Chunk = z.output<typeof chatChunk>;
type Choice = Chunk["choices"][number];
type Delta = Choice["delta"];
type Finish = z.output<typeof chatFinish>;

/** The options of a request that affect its answer. */
export interface ChatShape {
  /** Number of answers to the prompt. */
  readonly n: number;
  readonly logprobs: boolean;
  /** Format of tool calls; undefined if the request has no tools. */
  readonly calls?: "tool_calls" | "function_call";
  /**
   * Streaming options: whether a last chunk has the usage, and whether chunks report progress while the prompt is
   * processed.
   */
  readonly withUsage: boolean;
  readonly withProgress: boolean;
}

export async function wholeChat(
  engine: Engine,
  shape: ChatShape,
  pieces: AsyncIterable<Piece>,
): Promise<Answer> {
  const choices = Array.from({ length: shape.n }, () => new WholeChoice());
  for await (const piece of pieces) {
    choices[piece.index].add(piece);
  }
  return {
    ...headOf(engine, "chatcmpl"),
    object: "chat.completion",
    choices: choices.map((choice, index) => ({
      index,
      message: choice.message(shape),
      logprobs: shape.logprobs ? chatLogprobs(engine, choice.tokens) : null,
      finish_reason: finishOf(choice.reason, shape),
    })),
    usage: usageOf(choices.map((choice) => choice.usage!), shape.n),
  };
}

/** Collects the pieces of one answer. */
class WholeChoice {
  readonly tokens: ScoredToken[] = [];
  reason: Extract<Piece, { type: "finish" }>["reason"] = "length";
  usage: Usage | undefined;
  #content = "";
  #reasoning = "";
  readonly #calls: z.output<typeof toolCall>[] = [];

  add(piece: Piece): void {
    if (piece.type === "part") {
      for (const token of piece.tokens) this.tokens.push(token);
      this.#part(piece.part);
    } else if (piece.type === "finish") {
      this.reason = piece.reason;
      this.usage = piece.usage;
    }
  }

  #part(part: ChatPart): void {
    switch (part.type) {
      case "content":
        this.#content += part.text;
        break;
      case "reasoning":
        this.#reasoning += part.text;
        break;
      case "call":
        this.#calls[part.index] = {
          id: part.id,
          type: "function",
          function: { name: part.name, arguments: "" },
        };
        break;
      case "arguments":
        this.#calls[part.index].function.arguments += part.text;
    }
  }

  message({ calls }: ChatShape): Message {
    const called = this.#calls.length > 0;
    return {
      role: "assistant",
      content: called && this.#content === "" ? null : this.#content,
      refusal: null,
      ...(this.#reasoning === "" ? {} : { reasoning_content: this.#reasoning }),
      ...(!called
        ? {}
        : calls === "function_call"
        ? { function_call: this.#calls[0].function }
        : { tool_calls: this.#calls }),
    };
  }
}

function finishOf(reason: WholeChoice["reason"], { calls }: ChatShape): Finish {
  return reason === "tool_calls" && calls === "function_call" ? "function_call" : reason;
}

export async function* chatChunks(
  engine: Engine,
  shape: ChatShape,
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<Chunk> {
  const head = {
    ...headOf(engine, "chatcmpl"),
    object: "chat.completion.chunk" as const,
    ...(shape.withUsage ? { usage: null } : {}),
  };
  const usages: Usage[] = new Array(shape.n);
  const started: boolean[] = new Array(shape.n).fill(false);
  const chunk = (index: number, delta: Delta, rest: Partial<Choice> = {}): Chunk => ({
    ...head,
    choices: [{ index, delta, logprobs: null, finish_reason: null, ...rest }],
  });
  for await (const piece of pieces) {
    const { index } = piece;
    if (!started[index]) {
      started[index] = true;
      // An answer with tool calls may have no content, so it begins with null.
      yield chunk(index, { role: "assistant", content: shape.calls ? null : "", refusal: null });
    }
    if (piece.type === "progress") {
      if (shape.withProgress) yield { ...chunk(index, {}), prompt_progress: progressBody(piece.progress) };
    } else if (piece.type === "part") {
      const withLogprobs = shape.logprobs && piece.part.type === "content";
      const logprobs = withLogprobs ? chatLogprobs(engine, piece.tokens) : null;
      yield chunk(index, deltaOf(piece.part, shape), { logprobs });
    } else if (piece.type === "finish") {
      usages[index] = piece.usage;
      yield chunk(index, {}, { finish_reason: finishOf(piece.reason, shape) });
    }
  }
  if (shape.withUsage) yield { ...head, choices: [], usage: usageOf(usages, shape.n) };
}

/** Returns a part as a delta. A tool call starts with its id and name; its arguments follow in fragments. */
function deltaOf(part: ChatPart, { calls }: ChatShape): Delta {
  switch (part.type) {
    case "content":
      return { content: part.text };
    case "reasoning":
      return { reasoning_content: part.text };
    case "call": {
      const called = { name: part.name, arguments: "" };
      if (calls === "function_call") return { function_call: called };
      return { tool_calls: [{ index: part.index, id: part.id, type: "function", function: called }] };
    }
    case "arguments":
      if (calls === "function_call") return { function_call: { arguments: part.text } };
      return { tool_calls: [{ index: part.index, function: { arguments: part.text } }] };
  }
}
