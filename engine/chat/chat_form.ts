import type { Constraint } from "../grammar/types.ts";
import { type ChatTemplate, ChatTemplateError, type Tokenizer } from "../tokenizer/types.ts";
import { Answer } from "./answer.ts";
import { effortVariables } from "./effort.ts";
import type { AnswerShape, CallSyntax } from "./formats/format.ts";
import { CALL_FORMATS } from "./formats/registry.ts";
import { withReasoning } from "./history.ts";
import type { Input, Reading } from "./input.ts";
import { LarkGrammar } from "./lark.ts";
import { Marks } from "./marks.ts";
import { PartReader } from "./part_reader.ts";
import {
  findThinking,
  readThinking,
  type Thinking,
  thinkingGrammar,
  type ThinkingState,
  thinkingState,
} from "./thinking.ts";
import { type CheckedTool, checkTool, toolSpec } from "./tools.ts";
import type { ChatForm, ChatPlan, ChatRequest } from "./types.ts";

/** How the model of this template thinks and calls tools. Never throws for a template that the file has. */
export function createChatForm(template: ChatTemplate, tokenizer: Tokenizer): ChatForm {
  return new TemplateChatForm(template, tokenizer);
}

/** Tokens at the end of a prompt in which a mark of thinking may stand. */
const TAIL = 64;

class TemplateChatForm implements ChatForm {
  readonly toolFormat: string;
  /** The template, and its variant for tools. */
  readonly #source: string;
  readonly #marks: Marks;
  readonly #syntax: CallSyntax;
  readonly #thinking: Thinking | undefined;

  constructor(private readonly template: ChatTemplate, private readonly tokenizer: Tokenizer) {
    this.#source = template.source + (template.toolSource ?? "");
    this.#marks = new Marks(tokenizer);
    const format = CALL_FORMATS.find((format) => format.recognises(this.#source))!;
    this.toolFormat = format.name;
    this.#syntax = format.syntax(this.#marks, this.#source);
    this.#thinking = findThinking(this.#source, this.#marks);
  }

  plan(request: ChatRequest): ChatPlan {
    if (request.continueFinal) throw new ChatTemplateError("Cannot continue a message: not supported");
    const tools = chooseTools(request);
    const { prompt, state } = this.#prompt(request, tools.offered);
    const { callable } = tools;
    const { constraint } = request;
    return {
      prompt,
      constraint: this.#constraint(request, tools, state),
      markers: this.#markers(callable.length > 0),
      thinking: this.#thinking && {
        open: state === "open",
        begin: this.#marks.encode(this.#thinking.begin.text),
        end: this.#marks.encode(this.#thinking.end.text),
        budget: request.thinkingBudget ?? Infinity,
      },
      reader: () => {
        const answer = new Answer(callable.length > 0 && !constraint);
        const read = (input: Input) =>
          this.#read(input, answer, state === "open", callable.length > 0, constraint);
        return new PartReader(this.#marks, answer, read);
      },
    };
  }

  #prompt(request: ChatRequest, tools: readonly CheckedTool[]): { prompt: number[]; state: ThinkingState } {
    const reasoned = withReasoning(request.messages, this.#source, this.#thinking);
    const messages = this.#syntax.messages?.(reasoned, tools) ?? reasoned;
    const prompt = this.template.encode(messages, {
      tools: this.#syntax.toolsInMessages ? [] : tools.map(toolSpec),
      variables: { ...effortVariables(this.#source, request.effort), ...request.variables },
      atMost: request.atMost,
    });
    if (!this.#thinking) return { prompt, state: "closed" };
    const tail = this.tokenizer.decode(prompt.slice(-TAIL), { special: true, continuation: true });
    const state = thinkingState(this.#thinking, tail);
    const { beforeEnd, end, afterEnd } = this.#thinking;
    if (request.effort !== false || state === "closed") return { prompt, state };
    // Not to think was asked for: a thought that the template always begins is ended at once.
    if (state === "open") prompt.push(...this.#marks.encode(beforeEnd + end.text + afterEnd));
    return { prompt, state: "closed" };
  }

  #markers(calls: boolean): Set<number> {
    const thinking = this.#thinking ? [this.#thinking.begin, this.#thinking.end] : [];
    const marks = [...thinking, ...(calls ? this.#syntax.marks : [])];
    return new Set(marks.flatMap(({ token }) => token ?? []));
  }

  /** Thinking, if there may be any, then content in its form or calls. */
  #constraint({ constraint }: ChatRequest, tools: ChosenTools, state: ThinkingState): Constraint | undefined {
    const { callable, required, many } = tools;
    if (callable.length === 0 && !constraint) return undefined;
    const thinks = this.#thinking && state !== "closed";
    if (callable.length === 0 && !thinks) return constraint;
    const lark = new LarkGrammar();
    const content = constraint && lark.part(constraint);
    const shape: AnswerShape = { tools: callable, required, many, content };
    const body = callable.length > 0 ? this.#syntax.body(lark, shape) : content!;
    if (!thinks) return lark.build(body);
    const blank = dropsBlanks(constraint) ? lark.blank : "";
    return lark.build(`${thinkingGrammar(lark, this.#thinking!, state, blank)} ${body}`);
  }

  *#read(input: Input, answer: Answer, open: boolean, calls: boolean, constraint?: Constraint): Reading {
    if (this.#thinking) yield* readThinking(input, answer, this.#thinking, open, dropsBlanks(constraint));
    if (calls) return yield* this.#syntax.read(input, answer, constraint !== undefined);
    const content = (text: string) => answer.content(text);
    // An end without a beginning is no text, but where the content has a form it can only be some.
    const strays = this.#thinking && !constraint ? [this.#thinking.end] : [];
    while (yield* input.until(strays, content));
  }
}

/** Whether blanks before the content mean nothing: a text of another form than JSON is taken as it is. */
function dropsBlanks(constraint: Constraint | undefined): boolean {
  return !constraint || constraint.kind === "json_schema";
}

interface ChosenTools {
  /** Those that the prompt tells of. */
  readonly offered: readonly CheckedTool[];
  /** Those that the answer may call. */
  readonly callable: readonly CheckedTool[];
  readonly required: boolean;
  readonly many: boolean;
}

/** Throws ChatTemplateError for a choice that the tools do not allow, ConstraintError for schemas of no arguments. */
function chooseTools(
  { tools = [], toolChoice = "auto", parallelToolCalls = true }: ChatRequest,
): ChosenTools {
  if (toolChoice === "none") return { offered: [], callable: [], required: false, many: false };
  const offered = tools.map(checkTool);
  if (typeof toolChoice === "object") {
    const callable = offered.filter(({ name }) => name === toolChoice.name);
    if (callable.length === 0) {
      throw new ChatTemplateError(
        `Cannot choose the tool ${JSON.stringify(toolChoice.name)}: it is not among the tools`,
      );
    }
    return { offered, callable, required: true, many: false };
  }
  const required = toolChoice === "required";
  if (required && offered.length === 0) {
    throw new ChatTemplateError("Cannot require a call: there are no tools");
  }
  return { offered, callable: offered, required, many: parallelToolCalls };
}
