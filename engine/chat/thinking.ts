import type { Answer } from "./answer.ts";
import type { Input, Reading } from "./input.ts";
import type { LarkGrammar } from "./lark.ts";
import { type Mark, type Marks, textMark } from "./marks.ts";

/** The marks with which a model surrounds its thinking. */
export interface Thinking {
  readonly begin: Mark;
  readonly end: Mark;
  /** Text that always follows the mark `begin` and is not part of the thought. */
  readonly label: string;
  /** Text that templates write between `begin` with its label and the thought. */
  readonly afterBegin: string;
  /** Text that templates write between the thought and `end`. */
  readonly beforeEnd: string;
  /** Text that templates write between `end` and the answer. */
  readonly afterEnd: string;
  readonly around: Around | undefined;
}

/** Marks around an answer's content. */
export interface Around {
  readonly begin: Mark;
  readonly end: Mark;
  /** Whether the marks are tokens that also come without a thought before them. */
  readonly always: boolean;
}

/**
 * State of thinking after a prompt. "open": the prompt has begun it; "closed": the prompt has ended it; "free": the
 * model may begin it.
 */
export type ThinkingState = "open" | "closed" | "free";

const STYLES: readonly { begin: string; end: string; label?: string; lines?: boolean }[] = [
  { begin: "<think>", end: "</think>", lines: true },
  { begin: "<thought>", end: "</thought>", lines: true },
  { begin: "[THINK]", end: "[/THINK]" },
  { begin: "<seed:think>", end: "</seed:think>" },
  { begin: "<mm:think>", end: "</mm:think>" },
  { begin: "<|START_THINKING|>", end: "<|END_THINKING|>" },
  { begin: "<|channel>", end: "<channel|>", label: "thought\n" },
];

/** Content marks of Granite 3.3, whose prompt says: "write your response between <response></response>". */
const RESPONSE = ["<response>", "</response>"] as const;
/** Cohere's marks around an answer's content. */
const CONTENTS = [["<|START_RESPONSE|>", "<|END_RESPONSE|>"], ["<|START_TEXT|>", "<|END_TEXT|>"]] as const;

/**
 * Returns the marks of thinking; undefined if the model does not think. Marks occur in the template, or are tokens that
 * the model may write without the template.
 */
export function findThinking(source: string, marks: Marks): Thinking | undefined {
  const style = STYLES.find(({ begin, end }) =>
    source.includes(end) || source.includes(begin) || (marks.isToken(begin) && marks.isToken(end))
  );
  if (!style) return undefined;
  return {
    begin: marks.mark(style.begin),
    end: marks.mark(style.end),
    label: style.label ?? "",
    afterBegin: style.lines ? "\n" : "",
    beforeEnd: style.lines ? "\n" : "",
    afterEnd: style.lines ? "\n\n" : "",
    around: findAround(source, marks),
  };
}

export function findAround(source: string, marks: Marks): Around | undefined {
  if (source.includes(RESPONSE.join(""))) {
    return { begin: textMark(RESPONSE[0]), end: textMark(RESPONSE[1]), always: false };
  }
  const pair = CONTENTS.find((pair) => pair.every((text) => source.includes(text) && marks.isToken(text)));
  return pair && { begin: marks.mark(pair[0]), end: marks.mark(pair[1]), always: true };
}

/** Returns the grammar of an answer's content with its optional marks, if the model writes marks. */
export function contentGrammar(lark: LarkGrammar, around: Around | undefined, content: string): string {
  return around?.always ? `(${lark.mark(around.begin)})? ${content} (${lark.mark(around.end)})?` : content;
}

/** Returns the state of thinking at the end of a prompt. */
export function thinkingState({ begin, end, label }: Thinking, prompt: string): ThinkingState {
  const tail = prompt.trimEnd();
  if (tail.endsWith(end.text)) return "closed";
  return tail.endsWith((begin.text + label).trimEnd()) ? "open" : "free";
}

/** Returns the grammar of thinking before the answer. */
export function thinkingGrammar(lark: LarkGrammar, thinking: Thinking, state: ThinkingState, blank: string) {
  const rest = `${lark.until(thinking.end)} ${blank}`;
  if (state === "open") return rest;
  const label = thinking.label === "" ? "" : lark.text(thinking.label);
  // If prompts end with the role, GLM-4.5 begins the thought on a new line.
  return state === "free" ? `(${lark.blank} ${lark.mark(thinking.begin)} ${label} ${rest})?` : "";
}

/**
 * Reads optional thinking. With `blanks`, blanks before and after it are dropped. Returns whether the first mark around
 * the content was read.
 */
export function* readThinking(
  input: Input,
  answer: Answer,
  thinking: Thinking,
  open: boolean,
  blanks: boolean,
): Reading<boolean> {
  const { begin, end, label, around } = thinking;
  if (!open) {
    const blank = yield* input.blank();
    if (!(yield* input.mark([begin]))) {
      const isAround = around?.always && (yield* input.mark([around.begin])) !== undefined;
      if (!isAround) answer.content(blank);
      return isAround ?? false;
    }
    if (label !== "") yield* input.skip(label);
  }
  answer.beginThinking();
  const take = (text: string) => answer.reasoning(text);
  while ((yield* input.until([begin, end], take)) === begin);
  answer.endThinking();
  if (blanks) yield* input.blank();
  if (!around || !blanks && !around.always || !(yield* input.mark([around.begin]))) return false;
  if (blanks) yield* input.blank();
  return true;
}
