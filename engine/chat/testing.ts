import { assertEquals, equal } from "@std/assert";
import { createChatTemplate } from "./template/chat_template.ts";
import { bpeMetadata } from "../tokenizer/testing.ts";
import { TOKEN_TYPE } from "../tokenizer/token_types.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import { createChatForm } from "./chat_form.ts";
import type { ChatForm, ChatPart, ChatPlan, ChatReader, Tool } from "./types.ts";

/** Models for chat tests: each is a template, and a vocabulary of bytes and marks. */

export interface TestModel {
  readonly form: ChatForm;
  readonly tokenizer: Tokenizer;
}

export interface ModelParts {
  readonly template?: string;
  readonly toolUse?: string;
  readonly control?: readonly string[];
  readonly userDefined?: readonly string[];
}

export function testModel({ template, toolUse, control = [], userDefined = [] }: ModelParts): TestModel {
  const metadata = bpeMetadata({
    extra: [
      ...control.filter((text) => text !== "<|end_of_text|>").map((text) =>
        [text, TOKEN_TYPE.CONTROL] as const
      ),
      ...userDefined.map((text) => [text, TOKEN_TYPE.USER_DEFINED] as const),
      ["<|end_of_text|>", TOKEN_TYPE.CONTROL], // ends answers
    ],
    values: {
      ...(template === undefined ? {} : { chat_template: template }),
      ...(toolUse === undefined ? {} : { "chat_template.tool_use": toolUse }),
    },
  });
  const tokenizer = createTokenizer(metadata);
  return { form: createChatForm(createChatTemplate(metadata, tokenizer), tokenizer), tokenizer };
}

/** A test's result of reading an answer, with its parts joined. */
export interface Read {
  reasoning: string;
  content: string;
  calls: { name: string; arguments: string }[];
}

export function put(parts: readonly ChatPart[]): Read {
  const read: Read = { reasoning: "", content: "", calls: [] };
  for (const part of parts) {
    if (part.type === "reasoning" || part.type === "content") read[part.type] += part.text;
    else if (part.type === "call") {
      assertEquals(part.index, read.calls.length);
      read.calls.push({ name: part.name, arguments: "" });
    } else read.calls[part.index].arguments += part.text;
  }
  return read;
}

/** An event of an engine's output: a text piece or a marker token. */
type Event = string | number;

/** Returns `text` as a model's output, with marks as tokens if the vocabulary has them. */
function eventsOf({ tokenizer }: TestModel, plan: ChatPlan, text: string): Event[] {
  const events: Event[] = [];
  let held: number[] = [];
  const flush = () => {
    if (held.length > 0) events.push(tokenizer.decode(held, { continuation: true }));
    held = [];
  };
  for (const token of tokenizer.encode(text, { parseSpecial: true })) {
    if (!plan.markers.has(token)) held.push(token);
    else {
      flush();
      events.push(token);
    }
  }
  flush();
  return events;
}

function feed(reader: ChatReader, events: readonly Event[]): ChatPart[] {
  const parts = events.flatMap((event) =>
    typeof event === "number" ? reader.marker(event) : reader.text(event)
  );
  return [...parts, ...reader.end()];
}

/** Splits events into marks and single characters, the smallest pieces of an answer. */
function unitsOf(events: readonly Event[]): Event[] {
  return events.flatMap((event): Event[] => typeof event === "number" ? [event] : [...event]);
}

/** Reads an answer as a whole, by single characters, and in every split into two. Asserts equal results. */
export function readEveryWay(model: TestModel, plan: ChatPlan, text: string): Read {
  const events = eventsOf(model, plan, text);
  const whole = put(feed(plan.reader(), events));
  const units = unitsOf(events);
  assertEquals(put(feed(plan.reader(), units)), whole, `in single characters: ${JSON.stringify(text)}`);
  for (let cut = 1; cut < units.length; cut++) {
    const halves = [...joined(units.slice(0, cut)), ...joined(units.slice(cut))];
    const read = put(feed(plan.reader(), halves));
    if (!equal(read, whole)) assertEquals(read, whole, `cut at ${cut}: ${JSON.stringify(text)}`);
  }
  return whole;
}

/** Returns the results of reading the answer up to the end of each piece. */
export function readEveryBeginning(model: TestModel, plan: ChatPlan, text: string): Read[] {
  const units = unitsOf(eventsOf(model, plan, text));
  return units.map((_, end) => put(feed(plan.reader(), joined(units.slice(0, end)))));
}

function joined(events: readonly Event[]): Event[] {
  const result: Event[] = [];
  for (const event of events) {
    const last = result.at(-1);
    if (typeof event === "string" && typeof last === "string") result[result.length - 1] = last + event;
    else result.push(event);
  }
  return result;
}

export const WEATHER: Tool = {
  name: "get_weather",
  description: "The weather at a place",
  parameters: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city"],
  },
};

export const USER = [{ role: "user", content: "How is the weather?" }];
