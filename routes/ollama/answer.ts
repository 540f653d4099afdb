import { z } from "@hono/zod-openapi";
import { type Engine, parseWrittenJson } from "../../engine/mod.ts";
import type { Piece } from "../../engine/answers/pieces.ts";
import { chatLogprobs as logprobsSchema } from "../generation/answers.ts";
import { chatLogprobs } from "../generation/logprobs.ts";

/* Answers in Ollama's format. Whole answers and stream lines have the same fields. */

const toolCall = z.object({
  function: z.object({ name: z.string(), arguments: z.record(z.string(), z.unknown()) }),
});

const nanoseconds = z.number().int().optional();
const count = z.number().int().optional();
const logprobs = logprobsSchema.shape.content.optional();

const head = {
  model: z.string(),
  created_at: z.string().openapi({ format: "date-time" }),
  done: z.boolean(),
};
const ending = {
  done_reason: z.enum(["stop", "length", "load", "unload"]).optional(),
  total_duration: nanoseconds,
  load_duration: nanoseconds,
  prompt_eval_count: count,
  prompt_eval_duration: nanoseconds,
  eval_count: count,
  eval_duration: nanoseconds,
};
const message = z.object({
  role: z.literal("assistant"),
  content: z.string(),
  thinking: z.string().optional(),
  tool_calls: z.array(toolCall).optional(),
});

export const chatAnswer = z.object({ ...head, message, logprobs, ...ending }).openapi("OllamaChat");
export const generateAnswer = z.object({
  ...head,
  response: z.string(),
  thinking: z.string().optional(),
  logprobs,
  ...ending,
}).openapi("OllamaGenerate");

type Message = z.output<typeof message>;
type Ending = z.output<z.ZodObject<typeof ending>>;

/** The place of an answer's text: in a message, or in the field `response`. */
export type AnswerForm = "message" | "response";

/** Fields that all chunks of one answer share, and the time of its request. */
export interface AnswerShape {
  readonly model: string;
  readonly form: AnswerForm;
  /** Start of the request, in milliseconds of performance.now(). */
  readonly started: number;
  readonly loadMs: number;
  readonly logprobs: boolean;
}

/** A part of an answer, in the fields of a message. */
interface Delta extends Partial<Omit<Message, "role">> {
  readonly logprobs?: z.output<typeof logprobs>;
}

/** Fields that one piece adds to an answer; the last piece has an ending. */
interface Step {
  readonly delta: Delta;
  readonly ending?: Ending;
}

/** Returns the body of a chunk or answer. Without `ending`, more chunks follow. */
export function chunkOf(
  { model, form }: Pick<AnswerShape, "model" | "form">,
  { content = "", thinking, tool_calls, logprobs }: Delta,
  ending?: Ending,
) {
  const thought = thinking ? { thinking } : {};
  const calls = tool_calls?.length ? { tool_calls } : {};
  return {
    model,
    created_at: new Date().toISOString(),
    ...(form === "message"
      ? { message: { role: "assistant" as const, content, ...thought, ...calls } }
      : { response: content, ...thought }),
    ...(logprobs?.length ? { logprobs } : {}),
    done: ending !== undefined,
    ...ending,
  };
}

/** Returns the answer to a request that only loaded or unloaded the model. */
export function emptyAnswer(model: string, form: AnswerForm, done_reason: "load" | "unload") {
  return chunkOf({ model, form }, {}, { done_reason });
}

/** Yields the answer as the lines of a stream. */
export async function* answerChunks(engine: Engine, shape: AnswerShape, pieces: AsyncIterable<Piece>) {
  for await (const { delta, ending } of stepsOf(engine, shape, pieces)) yield chunkOf(shape, delta, ending);
}

/** Returns the whole answer. */
export async function wholeAnswer(engine: Engine, shape: AnswerShape, pieces: AsyncIterable<Piece>) {
  let content = "";
  let thinking = "";
  const tool_calls: z.output<typeof toolCall>[] = [];
  const logprobs: NonNullable<Delta["logprobs"]> = [];
  let end: Ending | undefined;
  for await (const { delta, ending } of stepsOf(engine, shape, pieces)) {
    content += delta.content ?? "";
    thinking += delta.thinking ?? "";
    tool_calls.push(...delta.tool_calls ?? []);
    for (const token of delta.logprobs ?? []) logprobs.push(token);
    end = ending;
  }
  return chunkOf(shape, { content, thinking, tool_calls, logprobs }, end);
}

async function* stepsOf(
  engine: Engine,
  shape: AnswerShape,
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<Step> {
  // A tool call is one step: Ollama's clients want its arguments as an object.
  let call: { readonly name: string; text: string } | undefined;
  function* called(): Generator<Step> {
    // A tool call whose arguments the token limit cut off is left out.
    const given = call && argumentsOf(call.text);
    if (given) {
      const { name } = call!;
      yield { delta: { tool_calls: [{ function: { name, arguments: given as Record<string, unknown> } }] } };
    }
    call = undefined;
  }
  for await (const piece of pieces) {
    if (piece.type === "progress" || piece.type === "prompt") continue;
    if (piece.type === "finish") {
      yield* called();
      yield { delta: {}, ending: endingOf(shape, piece) };
      continue;
    }
    const { part, tokens } = piece;
    if (part.type === "arguments") {
      call!.text += part.text;
      continue;
    }
    yield* called();
    if (part.type === "call") call = { name: part.name, text: "" };
    else if (part.type === "reasoning") yield { delta: { thinking: part.text } };
    else {
      const logprobs = shape.logprobs ? chatLogprobs(engine, tokens).content : undefined;
      yield { delta: { content: part.text, logprobs } };
    }
  }
}

/** Returns the arguments as an object; undefined if the token limit has cut them off. */
function argumentsOf(text: string): unknown {
  try {
    return parseWrittenJson(text || "{}");
  } catch {
    return undefined;
  }
}

function endingOf(
  { started, loadMs }: AnswerShape,
  { reason, usage, timings }: Extract<Piece, { type: "finish" }>,
): Ending {
  return {
    done_reason: reason === "length" ? "length" : "stop",
    total_duration: nanosecondsOf(performance.now() - started),
    load_duration: nanosecondsOf(loadMs),
    prompt_eval_count: usage.promptTokens,
    prompt_eval_duration: nanosecondsOf(timings.prefillMs),
    eval_count: usage.completionTokens,
    eval_duration: nanosecondsOf(timings.decodeMs),
  };
}

export function nanosecondsOf(ms: number): number {
  return Math.round(1e6 * ms);
}
