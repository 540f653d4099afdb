import type { Constraint } from "../grammar/types.ts";
import { type ChatTemplate, ChatTemplateError, type Tokenizer } from "../tokenizer/types.ts";
import { Answer } from "./answer.ts";
import type { AnswerShape, CallSyntax } from "./formats/format.ts";
import { CALL_FORMATS } from "./formats/registry.ts";
import type { Input, Reading } from "./input.ts";
import { LarkGrammar } from "./lark.ts";
import { Marks } from "./marks.ts";
import { PartReader } from "./part_reader.ts";
import { type Prompt, promptOf } from "./prompt.ts";
import { contentGrammar, findThinking, readThinking, type Thinking, thinkingGrammar } from "./thinking.ts";
import { type CheckedTool, checkTool } from "./tools.ts";
import type { ChatForm, ChatPlan, ChatRequest, ThinkingBounds } from "./types.ts";

/** Returns how the model of this template thinks and calls tools. */
export function createChatForm(template: ChatTemplate, tokenizer: Tokenizer): ChatForm {
  return new TemplateChatForm(template, tokenizer);
}

class TemplateChatForm implements ChatForm {
  readonly toolFormat: string;
  readonly markers: ReadonlySet<number>;
  /** Source texts of the chat template and of its variant for tools. */
  readonly #source: string;
  readonly #marks: Marks;
  readonly #syntax: CallSyntax;
  readonly #thinking: Thinking | undefined;

  constructor(private readonly template: ChatTemplate, private readonly tokenizer: Tokenizer) {
    this.#source = template.source + (template.toolSource ?? "");
    this.#marks = new Marks(tokenizer);
    const format = CALL_FORMATS.find((format) => format.recognises(this.#source))!;
    this.toolFormat = format.name;
    this.#syntax = format.syntax(this.#marks, this.#source, template);
    this.#thinking = this.#syntax.whole ? undefined : findThinking(this.#source, this.#marks);
    this.markers = this.#markersOf(true);
  }

  plan(request: ChatRequest): ChatPlan {
    const tools = chooseTools(request);
    const { template, tokenizer } = this;
    const model = {
      template,
      tokenizer,
      source: this.#source,
      syntax: this.#syntax,
      thinking: this.#thinking,
    };
    const prompt = promptOf(model, request, tools.offered);
    if (prompt.continues === "content" && request.constraint) {
      throw new ChatTemplateError(
        "Cannot constrain an answer that continues a message's content: a constraint applies to the whole content",
      );
    }
    if (prompt.continues === "content" && tools.required) {
      throw new ChatTemplateError(
        "Cannot require a call when the answer continues a message's content",
      );
    }
    return {
      prompt: prompt.tokens,
      constraint: this.#constraint(request, tools, prompt),
      markers: this.#markersOf(tools.callable.length > 0),
      thinking: this.#bounds(request, prompt),
      reader: () => {
        const answer = new Answer(tools.callable.length > 0 && !request.constraint);
        return new PartReader(
          this.#marks,
          answer,
          (input) => this.#read(input, answer, request, tools, prompt),
        );
      },
    };
  }

  #markersOf(calls: boolean): Set<number> {
    const { begin, end, around } = this.#thinking ?? {};
    const thinking = [begin, end, around?.begin, around?.end].flatMap((mark) => mark ?? []);
    const marks = [...thinking, ...(calls || this.#syntax.whole ? this.#syntax.marks : [])];
    return new Set(marks.flatMap(({ token }) => token ?? []));
  }

  #bounds({ thinkingBudget: budget = Infinity }: ChatRequest, prompt: Prompt): ThinkingBounds | undefined {
    const { whole } = this.#syntax;
    const begin = whole?.begin ?? this.#thinking?.begin.text;
    const end = whole?.end ?? this.#thinking?.end.text;
    if (begin === undefined || end === undefined) return undefined;
    return {
      open: prompt.thinking === "open",
      anywhere: whole !== undefined,
      begin: this.#marks.encode(begin),
      end: this.#marks.encode(end),
      budget,
      ...whole && this.#headers(whole, prompt),
    };
  }

  /**
   * Returns the message headers. Returns none if the mark that ends a header is not a token, because headers then look
   * like text.
   */
  #headers(
    { headers }: NonNullable<CallSyntax["whole"]>,
    { continues }: Prompt,
  ): Pick<ThinkingBounds, "headers"> {
    const end = headers.end.token;
    if (end === undefined) return {};
    const begin = headers.begin.flatMap(({ token }) => token ?? []);
    return { headers: { open: continues === undefined, begin, end } };
  }

  /** Returns the grammar of an answer: optional thinking, then constrained content or tool calls. */
  #constraint({ constraint }: ChatRequest, tools: ChosenTools, prompt: Prompt): Constraint | undefined {
    const { callable, required, many } = tools;
    if (callable.length === 0 && !constraint) return undefined;
    const { whole } = this.#syntax;
    const thinks = this.#thinking && prompt.thinking !== "closed";
    const around = this.#thinking?.around;
    if (callable.length === 0 && !thinks && !whole && !around?.always) return constraint;
    const lark = new LarkGrammar();
    const content = constraint && contentGrammar(lark, around, lark.part(constraint));
    const shape: AnswerShape = { tools: callable, required, many, content };
    if (whole) return lark.build(whole.grammar(lark, shape, prompt.continues));
    const body = callable.length > 0 ? this.#syntax.body(lark, shape) : content!;
    if (!thinks) return lark.build(body);
    const blank = dropsBlanks(constraint) ? lark.blank : "";
    return lark.build(`${thinkingGrammar(lark, this.#thinking!, prompt.thinking, blank)} ${body}`);
  }

  *#read(
    input: Input,
    answer: Answer,
    { constraint }: ChatRequest,
    { callable, required }: ChosenTools,
    prompt: Prompt,
  ): Reading {
    if (this.#syntax.whole) return yield* this.#syntax.whole.read(input, answer, prompt.continues);
    const formed = constraint !== undefined;
    // An unmatched end mark is dropped, except in constrained content, where it must be text.
    const strays = this.#thinking && !formed ? [this.#thinking.end] : [];
    if (this.#thinking) {
      const open = prompt.thinking === "open";
      const isAround = yield* readThinking(input, answer, this.#thinking, open, dropsBlanks(constraint));
      const { around } = this.#thinking;
      if (around?.always) strays.push(around.begin, around.end);
      else if (isAround && !formed) strays.push(around!.end);
    }
    if (callable.length > 0) {
      return yield* this.#syntax.read(input, answer, { tools: callable, required, formed, strays });
    }
    while (yield* input.until(strays, (text) => answer.content(text)));
  }
}

/** Returns whether blanks before the content are dropped. Content with a constraint other than JSON keeps them. */
function dropsBlanks(constraint: Constraint | undefined): boolean {
  return !constraint || constraint.kind === "json_schema";
}

interface ChosenTools {
  /** Tools described in the prompt. */
  readonly offered: readonly CheckedTool[];
  /** Tools that the answer may call. */
  readonly callable: readonly CheckedTool[];
  readonly required: boolean;
  readonly many: boolean;
}

/**
 * Returns the tools to offer and to allow. Throws ChatTemplateError for a choice that the tools do not allow,
 * ConstraintError for parameters that are not an object schema.
 */
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
