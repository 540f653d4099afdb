import { assert, assertEquals } from "@std/assert";
import type { Constraint, Grammars } from "../../grammar/types.ts";
import type { ChatMessage } from "../../tokenizer/types.ts";
import { put, readEveryWay, type TestModel, USER } from "../testing.ts";
import type { ChatPlan, ChatRequest } from "../types.ts";
import { type FormatCase, scripts, TOOLS } from "./testing.ts";
import type { Script } from "./testing_writers.ts";

/** Test checks for the answers and earlier turns of a call format, for any template of its family. */

type Form = Pick<FormatCase, "write" | "thinks" | "many" | "mixed">;

/** Returns a model's continuation of a prompt that has opened or closed the thinking. */
function continuation(form: Form, plan: ChatPlan, closed: boolean): (script: Script) => string {
  if (!plan.thinking?.open) return (script) => form.write(closed ? { ...script, reasoning: "" } : script);
  const empty = { content: "", calls: [] };
  const [begin, end] = form.write({ ...empty, reasoning: "§" }).split("§");
  return (script) =>
    script.reasoning === "" ? end + form.write(script) : form.write(script).slice(begin.length);
}

/** Returns whether the prompt ends with the end of a thought. */
function isClosed({ tokenizer }: TestModel, { prompt, thinking }: ChatPlan): boolean {
  const shown = (tokens: readonly number[]) => tokenizer.decode([...tokens], { special: true }).trimEnd();
  return thinking !== undefined && shown(prompt).endsWith(shown(thinking.end));
}

/** Asserts that answers in the family's spelling are read correctly in every split. */
export function checkAnswers(
  model: TestModel,
  form: Form,
  seed: number,
  count: number,
  request: Partial<ChatRequest> = {},
): void {
  const plan = model.form.plan({ messages: USER, tools: TOOLS, ...request });
  const closed = isClosed(model, plan);
  const write = continuation(form, plan, closed);
  for (const script of scripts(seed, count, form)) {
    const text = write(script);
    const { reasoning, content, calls } = readEveryWay(model, plan, text);
    const expected = { reasoning: closed ? "" : script.reasoning, content: script.content };
    assertEquals({ reasoning, content }, expected, text);
    assertEquals(called(calls), [...script.calls], text);
  }
}

/** Asserts that the grammar accepts these answers to their end. */
export async function checkTaken(
  grammars: Grammars,
  model: TestModel,
  form: Form,
  seed: number,
  count: number,
  request: Partial<ChatRequest> = {},
): Promise<void> {
  const plan = model.form.plan({ messages: USER, tools: TOOLS, ...request });
  const write = continuation(form, plan, isClosed(model, plan));
  for (const script of scripts(seed, count, form)) {
    const text = write(script);
    assertEquals(await accepts(grammars, model, plan.constraint!, text), "whole", text);
  }
}

/** Returns how many tokens of the text the grammar accepts, and whether it is accepted as a whole. */
export async function accepts(
  grammars: Grammars,
  { tokenizer }: TestModel,
  constraint: Constraint,
  text: string,
) {
  const matcher = (await grammars.compile(constraint)).matcher();
  try {
    const tokens = tokenizer.encode(text, { parseSpecial: true });
    for (const [at, token] of tokens.entries()) if (!matcher.consume(token)) return { at, of: tokens.length };
    return matcher.mayEnd || matcher.complete ? "whole" : "not to its end";
  } finally {
    matcher.close();
  }
}

/**
 * Asserts that calls of earlier turns in the prompt read as the same calls, and that their results are there: a model
 * must see its past in its own spelling. `tells` selects scripts that the template can show.
 */
export function checkHistory(
  model: TestModel,
  form: Form,
  seed: number,
  count: number,
  request: Partial<ChatRequest> = {},
  tells: (script: Script) => boolean = () => true,
): void {
  const options = { tools: TOOLS, ...request };
  const begun = model.form.plan({ messages: USER, ...options });
  // In earlier turns, the thought that a prompt opens may be missing.
  const unthinking = model.form.plan({ messages: USER, ...options, effort: false });
  for (const script of scripts(seed, count, form).filter(({ calls }) => calls.length > 0).filter(tells)) {
    const { prompt } = model.form.plan({ messages: [...USER, ...turnOf(script)], ...options });
    const shown = model.tokenizer.decode(prompt, { special: true });
    for (const index of script.calls.keys()) assert(shown.includes(resultOf(index)), shown);
    const { at, whole } = turnStart(model, begun, prompt);
    const read = readTurn(model, whole ? begun : unthinking, prompt.slice(at));
    assertEquals(called(read.calls), [...script.calls], shown);
    // Some templates drop text beside a call, or thoughts. gpt-oss's writes text as a thought.
    assert(["", script.content].includes(read.content.trim()), `${JSON.stringify(read.content)} of ${shown}`);
    const thoughts = read.content === "" ? ["", script.reasoning, script.content] : ["", script.reasoning];
    assert(thoughts.includes(read.reasoning.trim()), shown);
  }
}

const resultOf = (index: number) => `result ${index} is good`;

/** Returns the assistant's message with a script's calls, and the tool results. */
function turnOf({ reasoning, content, calls }: Script): ChatMessage[] {
  const id = (index: number) => `call_${"abcdefghijklmnopqrstuvw"}${index}`;
  return [
    {
      role: "assistant",
      content: content === "" ? null : content,
      ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
      tool_calls: calls.map(({ name, args }, index) => ({
        id: id(index),
        type: "function",
        function: { name, arguments: JSON.stringify(args) },
      })),
    },
    ...calls.map((_, index) => ({ role: "tool", tool_call_id: id(index), content: resultOf(index) })),
  ];
}

/**
 * Returns the start of the assistant's turn in `prompt`. `whole`: the turn includes everything at the end of `begun`, a
 * prompt for an answer.
 */
function turnStart({ tokenizer }: TestModel, begun: ChatPlan, prompt: readonly number[]) {
  let at = 0;
  while (at < begun.prompt.length && begun.prompt[at] === prompt[at]) at++;
  if (at === begun.prompt.length) return { at, whole: true };
  // The common prefix may end inside a thought, or inside a mark that is not a token. Go back to its start.
  const tail = Math.max(0, at - 32);
  const text = tokenizer.decode(prompt.slice(tail, at), { special: true });
  const begin = begun.thinking && tokenizer.decode(begun.thinking.begin, { special: true });
  const cut = Math.max(begin === undefined ? -1 : text.lastIndexOf(begin), text.search(/<[^<>\n]*$/));
  return {
    at: cut < 0 ? at : tail + tokenizer.encode(text.slice(0, cut), { parseSpecial: true }).length,
    whole: false,
  };
}

/** Reads the prompt's tokens up to the end of the turn. */
function readTurn({ tokenizer }: TestModel, plan: ChatPlan, tokens: readonly number[]) {
  const reader = plan.reader();
  const decoder = tokenizer.streamDecoder({ continuation: true });
  const parts = [];
  for (const token of tokens) {
    if (plan.markers.has(token)) {
      parts.push(...reader.text(decoder.end()), ...reader.marker(token));
      if (plan.thinking?.anywhere && tokenizer.decode([token], { special: true }) === "<|call|>") break;
    } else if (tokenizer.isControl(token)) break;
    else parts.push(...reader.text(decoder.push(token)));
  }
  return put([...parts, ...reader.text(decoder.end()), ...reader.end()]);
}

function called(calls: readonly { name: string; arguments: string }[]) {
  return calls.map(({ name, arguments: args }) => ({ name, args: JSON.parse(args) }));
}
