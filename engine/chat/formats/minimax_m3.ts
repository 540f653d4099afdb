import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import type { Mark, Marks } from "../marks.ts";
import {
  type Parameter,
  parameterValues,
  type Value,
  valuesByName,
  writtenParameters,
} from "../parameters.ts";
import type { CheckedTool } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { markedSyntax } from "./marked.ts";
import { isWrittenAsText, readTaggedValue, taggedValue } from "./tagged_value.ts";

/** The token that precedes every tag of the format. */
const NAMESPACE = "]<]minimax[>[";
/** Maximum depth of nested tags in a value. */
const MAX_DEPTH = 64;
const ITEM = "item";

/** The token that precedes tags, and marks for tags. */
interface Tags {
  readonly token: Mark;
  readonly marks: Marks;
  /**
   * Returns the mark of the token and the tag. If the vocabulary lacks the token, the mark is one literal, because a
   * grammar's lexer cannot separate texts with the same beginning.
   */
  tag(text: string): Mark;
}

/**
 * MiniMax M3: `<tool_call>`, a line break, `<invoke name="f"><p>text</p><list><item>1</item></list></invoke>` and a line
 * break for each call, `</tool_call>`. The token `]<]minimax[>[` precedes each tag. Each property and each item of a
 * value has its own tag. Sources: SGLang, srt/function_call/minimax_m3.py; llama.cpp, common/parsers/minimax-m3.cpp.
 */
export const minimaxM3: CallFormat = {
  name: "minimax-m3",
  recognises: (source) => source.includes(NAMESPACE),
  syntax(marks) {
    const token = marks.mark(NAMESPACE);
    const tags: Tags = { token, marks, tag: (text) => marks.around("", token, text) };
    const [begin, end] = [marks.mark("<tool_call>"), marks.mark("</tool_call>")];
    return markedSyntax({
      begin: token,
      others: [begin, end].filter(({ token }) => token !== undefined),
      rest(lark, { tools, many }) {
        const call = lark.rule(oneOf(tools.map((tool) => toolCall(lark, tool, tags))));
        const last = end.token === undefined
          ? lark.mark(tags.tag(end.text))
          : `${lark.mark(token)} ${lark.mark(end)}`;
        return `${lark.mark(begin)} "\\n" ${call} ${many ? `(${call})*` : ""} ${last}`;
      },
      *readRest(input, answer, tools) {
        if (!(yield* input.mark([begin]))) yield* input.skip(begin.text);
        do yield* input.blank(); while (
          (yield* input.mark([token])) && (yield* readCall(input, answer, tools, tags))
        );
        yield* input.until([end], () => {}); // skips text, but only in a malformed answer
      },
    });
  },
};

/** Whether a name is allowed as a tag's name. */
const canName = (name: string) => /^[^/<>\n][^<>\n]*$/.test(name);

function toolCall(lark: LarkGrammar, tool: CheckedTool, tags: Tags): string {
  const parameters = writeMembers(lark, writtenParameters(lark, tool, canName), tags);
  const [open, close] = [`<invoke name="${tool.name}">`, "</invoke>\n"].map((tag) =>
    lark.mark(tags.tag(tag))
  );
  return lark.rule(`${open} ${parameters} ${close}`);
}

function writeMembers(lark: LarkGrammar, members: readonly Parameter[], tags: Tags): string {
  return members.map(({ name, required, value }) => {
    const written = lark.rule(writeElement(lark, name, value, tags));
    return required ? written : `(${written})?`;
  }).join(" ");
}

/** Returns the grammar of a value with its opening and closing tag. */
function writeElement(lark: LarkGrammar, name: string, value: Value, tags: Tags): string {
  const [open, close] = [lark.mark(tags.tag(`<${name}>`)), tags.tag(`</${name}>`)];
  if (value.kind === "list") {
    return `${open} (${lark.rule(writeElement(lark, ITEM, value.items, tags))})* ${lark.mark(close)}`;
  }
  if (value.kind === "object" && value.properties.length > 0) {
    if (value.properties.every(({ name }) => canName(name))) {
      return `${open} ${writeMembers(lark, value.properties, tags)} ${lark.mark(close)}`;
    }
  }
  return `${open} ${taggedValue(lark, value, close, "JSON")}`;
}

/** Reads a call after its first token. Returns false if the call is incomplete. */
function* readCall(
  input: Input,
  answer: Answer,
  tools: readonly CheckedTool[],
  tags: Tags,
): Reading<boolean> {
  if (!(yield* input.accept(['<invoke name="']))) return false;
  const name = yield* input.before('">');
  if (name === undefined) return false;
  const call = answer.call(name);
  const emit = (json: string) => answer.args(call, json);
  const values = parameterValues(tools, name);
  emit("{");
  return yield* readMembers(input, emit, tags, "invoke", (key) => values.get(key), 0);
}

/**
 * Reads an object's tagged properties and its closing tag; its opening brace is already emitted. `first` is the first
 * tag, if it is already read. Returns false if the object is incomplete.
 */
function* readMembers(
  input: Input,
  emit: (json: string) => void,
  tags: Tags,
  name: string,
  valueOf: (key: string) => Value | undefined,
  depth: number,
  first?: string,
  before = "",
): Reading<boolean> {
  for (let separator = before, known = first;; separator = ", ", known = undefined) {
    const key = known ?? (yield* readTag(input, tags));
    if (key === undefined) return false;
    if (key.startsWith("/")) return key === `/${name}` && (emit("}"), true);
    emit(`${separator}${JSON.stringify(key)}: `);
    if (!(yield* readElement(input, emit, tags, key, valueOf(key), depth))) return false;
  }
}

/** Reads a value and its closing tag; the opening tag is already read. Returns false if the value is incomplete. */
function* readElement(
  input: Input,
  emit: (json: string) => void,
  tags: Tags,
  name: string,
  value: Value | undefined,
  depth: number,
): Reading<boolean> {
  const close = tags.tag(`</${name}>`);
  if (depth === MAX_DEPTH) return false;
  if (value && isWrittenAsText(value, close)) {
    return yield* readTaggedValue(input, emit, close, tags.marks, value);
  }
  if (value?.kind !== "list" && value?.kind !== "object") {
    // Without a schema, only the text shows the kind of value: lists and objects begin with a tag.
    const isTag = yield* input.startsWith(tags.token.sign + "<");
    if (!isTag || (yield* input.startsWith(close.sign))) {
      return yield* readTaggedValue(input, emit, close, tags.marks, value);
    }
  } else {
    yield* input.blank();
    if (!(yield* input.startsWith(tags.token.sign + "<"))) {
      return yield* readTaggedValue(input, emit, close, tags.marks, value);
    }
  }
  const first = yield* readTag(input, tags);
  if (first === undefined) return false;
  if (value?.kind === "list") {
    return yield* readItems(input, emit, tags, name, value.items, depth + 1, first);
  }
  if (value?.kind !== "object" && first === ITEM) {
    return yield* readItemsOrMembers(input, emit, tags, name, depth + 1);
  }
  const properties = value?.kind === "object" ? valuesByName(value.properties) : undefined;
  emit("{");
  return yield* readMembers(input, emit, tags, name, (key) => properties?.get(key), depth + 1, first);
}

/**
 * Reads a list's tagged items and its closing tag. `first` is the first tag. Returns false if the list is incomplete.
 */
function* readItems(
  input: Input,
  emit: (json: string) => void,
  tags: Tags,
  name: string,
  value: Value,
  depth: number,
  first: string,
): Reading<boolean> {
  emit("[");
  for (let tag: string | undefined = first, separator = "";; separator = ", ") {
    if (tag === `/${name}`) {
      emit("]");
      return true;
    }
    if (tag !== ITEM) return false;
    emit(separator);
    if (!(yield* readElement(input, emit, tags, ITEM, value, depth))) return false;
    tag = yield* readTag(input, tags);
  }
}

/**
 * Reads a value without a schema after its first `<item>`: a list, or an object if another property follows. Emits
 * nothing before it knows the kind. Returns false if the value is incomplete.
 */
function* readItemsOrMembers(
  input: Input,
  emit: (json: string) => void,
  tags: Tags,
  name: string,
  depth: number,
): Reading<boolean> {
  const items: string[] = [];
  let tag: string | undefined = ITEM;
  while (tag === ITEM) {
    let item = "";
    const isComplete: boolean = yield* readElement(
      input,
      (json) => item += json,
      tags,
      ITEM,
      undefined,
      depth,
    );
    items.push(item);
    tag = isComplete ? yield* readTag(input, tags) : undefined;
  }
  const list = `[${items.join(", ")}`;
  if (tag === `/${name}`) return emit(`${list}]`), true;
  if (tag === undefined || tag.startsWith("/")) return emit(list), false;
  emit(`{"${ITEM}": ${items.length === 1 ? items[0] : `${list}]`}`);
  return yield* readMembers(input, emit, tags, name, () => undefined, depth, tag, ", ");
}

/** Reads the next tag and returns the text between its angle brackets; undefined if the next text is not a tag. */
function* readTag(input: Input, { token }: Tags): Reading<string | undefined> {
  yield* input.blank();
  if (!(yield* input.mark([token])) || !(yield* input.accept(["<"]))) return undefined;
  return yield* input.before(">");
}
