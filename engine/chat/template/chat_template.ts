import { quote } from "../../gguf/errors.ts";
import type { Metadata } from "../../gguf/types.ts";
import { CALL_STYLES, type CallStyle, mapTexts, mergedMessages, plainMessage } from "./chat_messages.ts";
import { compileTemplate, type Render, TemplateRefusal } from "./jinja/template.ts";
import { atOnce, finish, type Paced } from "../../pacing/pauses.ts";
import { addMarks } from "../../tokenizer/special/literal_marks.ts";
import { TokenFinder } from "../../tokenizer/special/token_finder.ts";
import { TOKEN_TYPE } from "../../tokenizer/token_types.ts";
import {
  type ChatMessage,
  type ChatTemplate,
  ChatTemplateError,
  type ChatTemplateOptions,
  isReservedVariable,
  type Tokenizer,
} from "../../tokenizer/types.ts";

/** Template for files without one if the vocabulary has `<|im_start|>`. */
const CHATML = `{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

/** Template for other files without one: lines of "role: content". */
const PLAIN = `{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}`;

const KEY = "tokenizer.chat_template";

/** Number of message texts to prepare between possible pauses. */
const TEXTS_PER_OFFER = 256;

/** A chat template that replaces the model file's template. */
export interface GivenTemplate {
  /** The chat template's Jinja source. */
  readonly source: string;
  /** The template's file name, for messages. */
  readonly file?: string;
}

/** The template sources of a file, or the given one. */
interface Sources {
  main: string;
  /** Name of the `main` template in messages. */
  name: string;
  /** Source of the variant for conversations with tools, if any. */
  toolUse?: string;
  /** Whether the file has no template, so that a default is used. */
  fallback: boolean;
}

function readSources(metadata: Metadata, given: GivenTemplate | undefined): Sources {
  if (given) return { main: given.source, name: nameOf(given), fallback: false };
  const variant = (name: string) =>
    metadata.has(`${KEY}.${name}`) ? metadata.getString(`${KEY}.${name}`) : undefined;
  const toolUse = variant("tool_use");
  const main = metadata.has(KEY) ? metadata.getString(KEY) : variant("default");
  if (main !== undefined) return { main, name: KEY, toolUse, fallback: false };
  const chatMl = metadata.getStrings("tokenizer.ggml.tokens")?.includes("<|im_start|>");
  return { main: chatMl ? CHATML : PLAIN, name: KEY, toolUse, fallback: true };
}

function nameOf({ file }: GivenTemplate): string {
  return file === undefined ? "the given chat template" : `the chat template ${quote(file)}`;
}

/** Throws ChatTemplateError, with file and line, if a template does not parse or is too long. */
export function checkTemplate(given: GivenTemplate): void {
  new Variant(nameOf(given), given.source);
}

/**
 * Returns the file's chat template: `tokenizer.chat_template`, and its variant `tool_use` for conversations
 * with tools. A file without a template gets ChatML if its vocabulary has `<|im_start|>`, else lines of
 * "role: content"; neither supports tools. A given template replaces all these templates. Throws ChatTemplateError for a
 * template that does not parse.
 */
export function createChatTemplate(
  metadata: Metadata,
  tokenizer: Tokenizer,
  given?: GivenTemplate,
): ChatTemplate {
  return new JinjaChatTemplate(readSources(metadata, given), metadata, tokenizer);
}

class JinjaChatTemplate implements ChatTemplate {
  readonly source: string;
  readonly toolSource: string | undefined;
  readonly #main: Variant;
  readonly #toolUse: Variant;
  readonly #knowsTools: boolean;
  readonly #controls: TokenFinder;
  readonly #specialTexts: Readonly<Record<string, string>>;

  constructor(sources: Sources, metadata: Metadata, private readonly tokenizer: Tokenizer) {
    const tokens = metadata.getStrings("tokenizer.ggml.tokens") ?? [];
    const text = (token: number | undefined) => token === undefined ? "" : tokens[token];
    this.#specialTexts = { bos_token: text(tokenizer.bosToken), eos_token: text(tokenizer.eosToken) };
    this.#controls = controlFinder(metadata, tokenizer, "but thinking");
    this.#knowsTools = !sources.fallback || sources.toolUse !== undefined;
    this.source = sources.main;
    this.toolSource = sources.toolUse;
    this.#main = new Variant(sources.name, sources.main);
    this.#toolUse = sources.toolUse === undefined
      ? this.#main
      : new Variant(`${KEY}.tool_use`, sources.toolUse);
  }

  encode(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): number[] {
    const { bosToken } = this.tokenizer;
    const tokens = this.tokenizer.encode(finish(this.#steps(messages, options, true)), {
      parseSpecial: true,
      marked: true,
      atMost: options.atMost,
    });
    // The prompt has exactly one BOS if the file wants one, even if the template writes another. This follows
    // llama.cpp.
    const wantsBos = bosToken !== undefined &&
      this.tokenizer.encode("", { addSpecial: true })[0] === bosToken;
    return wantsBos && tokens[0] !== bosToken ? [bosToken, ...tokens] : tokens;
  }

  render(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    return finish(this.#steps(messages, options, false));
  }

  get takesSystem(): boolean {
    return this.#main.takesSystem;
  }

  /**
   * Renders the conversation in steps. If `marked`, control tokens in messages, tools and variables are marked as text.
   */
  *#steps(messages: readonly ChatMessage[], options: ChatTemplateOptions, marked: boolean): Paced<string> {
    try {
      return yield* this.#rendered(messages, options, marked);
    } catch (error) {
      const merged = error instanceof TemplateRefusal ? mergedMessages(messages) : messages;
      if (merged.every((message, at) => message === messages[at])) {
        throw templateError("Cannot render the conversation", error);
      }
      try {
        return yield* this.#rendered(merged, options, marked);
      } catch {
        throw templateError("Cannot render the conversation", error);
      }
    }
  }

  *#rendered(messages: readonly ChatMessage[], options: ChatTemplateOptions, marked: boolean): Paced<string> {
    const { addGenerationPrompt = true, tools = [], variables = {}, endBefore } = options;
    if (tools.length > 0 && !this.#knowsTools) {
      throw new ChatTemplateError("Cannot use tools: the model's file has no chat template");
    }
    for (const name of Object.keys(variables)) {
      if (isReservedVariable(name)) {
        throw new Error(`the variable ${quote(name)} cannot be set from outside`);
      }
    }
    let texts = 0;
    const controls = this.#controls;
    const data = <T>(value: T) =>
      mapTexts(value, function* (text) {
        if (++texts % TEXTS_PER_OFFER === 0) yield;
        return marked ? yield* addMarks(text, controls) : text;
      });
    const variant = tools.length > 0 ? this.#toolUse : this.#main;
    const withCalls = messages.some(({ tool_calls }) => tool_calls !== undefined);
    const style = withCalls ? variant.callStyle : CALL_STYLES[0];
    const shown: unknown[] = [];
    for (const message of messages) {
      shown.push(yield* data(variant.translate(plainMessage(message, style, variant.takesParts))));
    }
    const own = {
      ...this.#specialTexts,
      messages: shown,
      ...variant.toolVariables(tools.length > 0 ? yield* data(tools) : null),
      add_generation_prompt: addGenerationPrompt,
    };
    const prompt = yield* variant.render({ ...yield* data(variables), ...own });
    if (endBefore === undefined) return prompt;
    const end = prompt.lastIndexOf(endBefore);
    if (end < 0) throw new Error(`it leaves ${quote(endBefore)} out`);
    return prompt.slice(0, end);
  }
}

/** One of a file's chat templates, with its needs found by trial. */
class Variant {
  readonly render: Render;
  readonly #knowsDeveloper: boolean;
  readonly #knowsXmlTools: boolean;
  #callStyle: CallStyle | undefined;
  #needsAll: boolean | undefined;
  #takesParts: boolean | undefined;
  #takesSystem: boolean | undefined;

  constructor(name: string, source: string) {
    try {
      this.render = compileTemplate(source);
    } catch (error) {
      throw templateError(`Cannot parse ${name}`, error);
    }
    this.#knowsDeveloper = source.includes("developer");
    this.#knowsXmlTools = /\bxml_tools\b/.test(source);
  }

  /** Returns the template's variables for tools. SmolLM3's template reads JSON tools from `xml_tools`. */
  toolVariables(given: unknown[] | null): Record<string, unknown> {
    const tools = given?.some((tool) => complete(tool) !== tool) && this.needsAll
      ? given.map(complete)
      : given;
    return this.#knowsXmlTools && tools ? { tools, xml_tools: tools } : { tools };
  }

  /** Whether the template fails for a tool without optional fields, as gpt-oss's and Hermes' do. */
  get needsAll(): boolean {
    return this.#needsAll ??= !this.#tryTools([BARE_TOOL]) && this.#tryTools([complete(BARE_TOOL)]);
  }

  /**
   * Returns the message with a role that the template knows. Most do not know `developer`, the API's newer name for
   * system.
   */
  translate(message: Record<string, unknown>): Record<string, unknown> {
    const rename = message.role === "developer" && !this.#knowsDeveloper;
    return rename ? { ...message, role: "system" } : message;
  }

  /**
   * The form of messages with tool calls that the template takes, found by trial. A template that ignores calls gets an
   * empty content, and so does one that prints a missing content as "None".
   */
  get callStyle(): CallStyle {
    return this.#callStyle ??= this.#findCallStyle();
  }

  #findCallStyle(): CallStyle {
    const style = CALL_STYLES.find((style) => this.#takesCalls(style)) ?? CALL_STYLES.at(-1)!;
    const takesTexts = this.#tryCalls({ ...style, objects: false }) !== undefined;
    return { ...style, wraps: !takesTexts };
  }

  #takesCalls(style: CallStyle): boolean {
    const text = this.#tryCalls(style);
    if (text === undefined || style.noContent === "") return text !== undefined;
    const nones = (text = "") => text.split("None").length;
    return nones(text) <= nones(this.#tryCalls({ ...style, noContent: "" }) ?? text);
  }

  /** Whether the template shows a text only in a list of parts, as SmolVLM's and Idefics 3's do. */
  get takesParts(): boolean {
    return this.#takesParts ??= !this.#shows("compy_probe") &&
      this.#shows([{ type: "text", text: "compy_probe" }]);
  }

  #shows(content: unknown): boolean {
    return this.#try([{ role: "user", content }], null)?.includes("compy_probe") ?? false;
  }

  /** Whether the template shows a system message at the beginning. */
  get takesSystem(): boolean {
    const probe = ["system", "user"].map((role) =>
      plainMessage({ role, content: `compy_${role}` }, CALL_STYLES[0], this.takesParts)
    );
    return this.#takesSystem ??= this.#try(probe, null)?.includes("compy_system") ?? false;
  }

  /** Returns the rendered test conversation; undefined if it does not show the call. */
  #tryCalls(style: CallStyle): string | undefined {
    const messages = PROBE.map((message) => plainMessage(message, style, this.takesParts));
    const text = this.#try(messages, [complete(BARE_TOOL)]);
    return text?.includes("compy_probe") ? text : undefined;
  }

  #tryTools(tools: readonly unknown[]): boolean {
    return this.#try([plainMessage(PROBE[0], CALL_STYLES[0], this.takesParts)], tools) !== undefined;
  }

  /** Returns the rendered text; undefined if rendering fails or takes longer than a trial may. */
  #try(messages: readonly unknown[], tools: readonly unknown[] | null): string | undefined {
    const texts = { bos_token: "", eos_token: "" };
    try {
      return atOnce(this.render({ messages, tools, add_generation_prompt: false, ...texts }));
    } catch {
      return undefined;
    }
  }
}

const BARE_TOOL = { type: "function", function: { name: "probe", parameters: { type: "object" } } };

/** Returns the tool, with an empty description and empty properties if they are missing. */
function complete<T>(tool: T): T {
  const { function: called } = (tool ?? {}) as { function?: Record<string, unknown> };
  const parameters = called?.parameters;
  if (typeof parameters !== "object" || parameters === null) return tool;
  if ("description" in called! && "properties" in parameters) return tool;
  const all = {
    ...called,
    description: called!.description ?? "",
    parameters: { properties: {}, ...parameters },
  };
  return { ...tool, function: all };
}

/** A conversation with a call, to test how a template renders it. */
const PROBE: readonly ChatMessage[] = [
  { role: "user", content: "probe" },
  {
    role: "assistant",
    content: null,
    tool_calls: [{
      id: "call00000", // Mistral's templates require nine letters and digits
      type: "function",
      function: { name: "probe", arguments: '{"compy_probe":"probe"}' },
    }],
  },
  { role: "tool", tool_call_id: "call00000", name: "probe", content: "probe" },
  { role: "assistant", content: "probe" },
  { role: "user", content: "probe" },
];

/** Returns a function that finds texts in untrusted text that must not become control tokens. */
export function controlFinder(
  metadata: Metadata,
  tokenizer: Tokenizer,
  which: "all" | "but thinking",
): TokenFinder {
  const tokens = metadata.getStrings("tokenizer.ggml.tokens") ?? [];
  const types = metadata.getNumbers("tokenizer.ggml.token_type");
  const texts = new Map<number, string>();
  for (const [token, text] of tokens.entries()) {
    const isControl = tokenizer.isControl(token) || types?.[token] === TOKEN_TYPE.UNKNOWN;
    // Templates remove thoughts from earlier turns by their end mark. That token does not end a turn, so messages may
    // contain it.
    if (isControl && (which === "all" || !/think/i.test(text))) texts.set(token, text);
  }
  return new TokenFinder(texts);
}

/** Returns the error to throw when a template fails. */
function templateError(what: string, error: unknown): ChatTemplateError {
  if (error instanceof TemplateRefusal) return new ChatTemplateError(error.message, { cause: error });
  const reason = error instanceof Error ? error.message : String(error);
  return new ChatTemplateError(`${what}: ${reason}`, { cause: error });
}
