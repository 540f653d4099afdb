import { assert, assertEquals } from "@std/assert";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import type OpenAI from "openai";

/* Checks tool calls with a validator that is independent of their generation. */

export type Tool = OpenAI.ChatCompletionFunctionTool;

export interface Call {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

/** The content of an answer, streamed or not. */
export interface Said {
  readonly content: string;
  readonly reasoning: string;
  readonly calls: readonly Call[];
  readonly finish: string | null;
}

type Extra = { reasoning_content?: string };

export function saidWhole({ message, finish_reason }: OpenAI.ChatCompletion.Choice): Said {
  return {
    content: message.content ?? "",
    reasoning: (message as Extra).reasoning_content ?? "",
    calls: (message.tool_calls ?? []).map((call) => {
      if (call.type !== "function") throw new Error(`A call of type ${call.type}`);
      return { id: call.id, name: call.function.name, arguments: call.function.arguments };
    }),
    finish: finish_reason,
  };
}

/** Joins a stream strictly: calls in order, each with its name and id first and once, then its arguments. */
export function saidInStream(chunks: readonly OpenAI.ChatCompletionChunk[], index = 0): Said {
  const said = { content: "", reasoning: "", calls: [] as { -readonly [k in keyof Call]: Call[k] }[] };
  let finish: string | null = null;
  for (const choice of chunks.flatMap(({ choices }) => choices).filter((choice) => choice.index === index)) {
    assertEquals(finish, null, "something follows the finish");
    finish = choice.finish_reason;
    said.content += choice.delta.content ?? "";
    said.reasoning += (choice.delta as Extra).reasoning_content ?? "";
    for (const { index, id, type, function: called } of choice.delta.tool_calls ?? []) {
      if (id !== undefined) {
        assertEquals([index, type, called?.arguments], [said.calls.length, "function", ""]);
        said.calls.push({ id, name: called!.name!, arguments: "" });
      } else {
        assertEquals([index, called?.name], [said.calls.length - 1, undefined]);
        said.calls[index].arguments += called!.arguments!;
      }
    }
  }
  return { ...said, finish };
}

/** Returns the answer's content without ids, which differ in each answer. */
export function withoutIds(said: Said) {
  return { ...said, calls: said.calls.map(({ name, arguments: text }) => ({ name, text })) };
}

const ajv = new Ajv2020.default({ strict: false });
addFormats.default(ajv);

/** Throws unless every call names a given tool and its arguments match the schema; the last call may be cut. */
export function judgeCalls(said: Said, tools: readonly Tool[]): void {
  const ids = said.calls.map(({ id }) => id);
  assertEquals(new Set(ids).size, ids.length);
  for (const id of ids) assert(/^call_[A-Za-z]{24}$/.test(id), id);
  const isCut = said.finish === "length";
  if (!isCut) assertEquals(said.finish, said.calls.length > 0 ? "tool_calls" : "stop");
  said.calls.forEach((call, i) => {
    const tool = tools.find((tool) => tool.function.name === call.name);
    if (tool === undefined) throw new Error(`No tool is named ${JSON.stringify(call.name)}`);
    if (isCut && i === said.calls.length - 1) return;
    const value = JSON.parse(call.arguments);
    assert(typeof value === "object" && value !== null && !Array.isArray(value), call.arguments);
    const schema = tool.function.parameters;
    if (schema === undefined) return;
    assert(ajv.validate(schema, value), `${call.name}(${call.arguments}): ${ajv.errorsText()}`);
  });
}

/** Throws unless a value is JSON that the schema accepts. */
export function judgeJson(text: string, schema: object | boolean): void {
  assert(ajv.validate(schema, JSON.parse(text)), `${text}: ${ajv.errorsText()}`);
}

/** Returns the token counts without drafts, whose number depends on the other rows of a step. */
function tokensOf({ completion_tokens, completion_tokens_details }: OpenAI.CompletionUsage) {
  return [completion_tokens, completion_tokens_details?.reasoning_tokens];
}

/** Sends the request with and without a stream, with the same seed. Throws if the answers differ. */
export async function askBothWays(
  client: OpenAI,
  body: OpenAI.ChatCompletionCreateParamsNonStreaming & Record<string, unknown>,
): Promise<Said[]> {
  const request = { seed: 1, ...body };
  const whole = await client.chat.completions.create({ ...request, stream: false });
  const stream = await client.chat.completions.create({
    ...request,
    stream: true,
    stream_options: { include_usage: true },
  });
  const chunks = await Array.fromAsync(stream);
  const choices = whole.choices.map(saidWhole);
  choices.forEach((said, i) => {
    assertEquals(withoutIds(saidInStream(chunks, i)), withoutIds(said), "streamed and whole differ");
  });
  assertEquals(tokensOf(chunks.at(-1)!.usage!), tokensOf(whole.usage!));
  return choices;
}
