import type { Constraint } from "../../grammar/types.ts";
import { tryJson } from "../types.ts";
import { type Input, JsonScan, type Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import type { Mark, Marks } from "../marks.ts";
import type { Value } from "../parameters.ts";
import { looseEnds, looseJson } from "./loose_value.ts";
import type { Words } from "./python_call.ts";

const BOOLEANS: Readonly<Record<Words, readonly string[]>> = {
  JSON: ["true", "false"],
  Python: ["true", "false", "True", "False"],
};

/** Returns the grammar of a value between tags, with its closing tag: text unchanged, other values as JSON. */
export function taggedValue(lark: LarkGrammar, value: Value, end: Mark, words: Words): string {
  return value.kind === "text" ? lark.until(end) : `${writeValue(lark, value, end, words)} ${lark.mark(end)}`;
}

function writeValue(
  lark: LarkGrammar,
  value: Exclude<Value, { kind: "text" }>,
  end: Mark,
  words: Words,
): string {
  if (value.kind === "choice" && isPlainChoice(value, end)) {
    return oneOf(value.choices.map((text) => lark.text(text)));
  }
  // Models with Python's words in their templates also write JSON's words.
  if (value.kind === "boolean") return oneOf(BOOLEANS[words].map((word) => lark.text(word)));
  return lark.part(formOf(value));
}

/** Returns whether `taggedValue` writes the value as text without quotes. */
export function isWrittenAsText(value: Value, end: Mark): boolean {
  return value.kind === "text" || (value.kind === "choice" && isPlainChoice(value, end));
}

/** Results of `isPlainChoice` by closing tag: a list may have many items with the same large choice. */
const plainChoices = new WeakMap<readonly string[], Map<string, boolean>>();

/** Returns whether the texts can be written unchanged between tags. */
function isPlainChoice({ choices }: { choices: readonly string[] }, end: Mark): boolean {
  const known = plainChoices.get(choices) ?? new Map<string, boolean>();
  plainChoices.set(choices, known);
  const isPlain = known.get(end.text) ??
    choices.every((text) => !text.includes(end.text.trim()) && text.trim() === text);
  known.set(end.text, isPlain);
  return isPlain;
}

function formOf(value: Exclude<Value, { kind: "text" | "boolean" }>): Constraint {
  return value.kind === "choice" ? { kind: "json_schema", schema: { enum: value.choices } } : value.form;
}

/**
 * Reads a value between tags and its closing tag. Returns false if the value does not end. Text becomes a JSON string
 * as it arrives. Other values are JSON or Python, or text if they are neither.
 */
export function* readTaggedValue(
  input: Input,
  emit: (json: string) => void,
  end: Mark,
  marks: Marks,
  value?: Value,
): Reading<boolean> {
  if (value && isWrittenAsText(value, end)) {
    emit('"');
    const ended = yield* input.until([end], (text) => emit(JSON.stringify(text).slice(1, -1)));
    if (ended) emit('"');
    return ended !== undefined;
  }
  // A closing tag that is not a token may be part of a string in the value. Parsing at each tag would take quadratic
  // time, so the reader only scans tags in strings.
  const scan = value && end.token === undefined ? new JsonScan() : undefined;
  const looseEnd = looseEnds(marks);
  for (let text = "", piece = "";; piece = end.text) {
    if (!(yield* input.until([end], (more) => piece += more))) return false;
    text += piece;
    const inString = scan?.endsInString(piece) ?? false;
    // Only JSON's strings all begin with a double quotation mark: {'size': '5"'} is complete.
    if (inString && !looseEnd(piece)) continue;
    const json = tryJson(text) === undefined ? looseJson(text, marks) : text.trim();
    if (json === undefined && inString) continue;
    emit(json ?? JSON.stringify(text));
    return true;
  }
}
