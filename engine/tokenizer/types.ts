/** The tokenizer as the rest of the engine sees it. Token ids are indices into `tokenizer.ggml.tokens`. */

export interface EncodeOptions {
  /** Prepend BOS / append EOS as the file's `add_bos_token` / `add_eos_token` say. Default false. */
  addSpecial?: boolean;
  /** Recognise control tokens such as `<|im_end|>` in the text. Default false: strangers' text stays text. */
  parseSpecial?: boolean;
  /** The text is a prompt with marks (literal_marks.ts): they are taken out once control tokens are found. */
  marked?: boolean;
  /** Throw TooManyTokens where the text has more, without counting them all. */
  atMost?: number;
}

/** A text has more tokens than were asked for: `atLeast` of them. */
export class TooManyTokens extends Error {
  override name = "TooManyTokens";
  constructor(readonly atLeast: number) {
    super(`The text has at least ${atLeast} tokens`);
  }
}

export interface DecodeOptions {
  /** Give the text of control tokens too; else they are left out. */
  special?: boolean;
  /**
   * The tokens go on where a prompt ended. Else they are a whole text, and a SentencePiece vocabulary's blank before
   * the first word is left out.
   */
  continuation?: boolean;
}

export interface StreamDecoder {
  /** The text that this token completes: never ends inside a character; invalid bytes become U+FFFD once. */
  push(token: number): string;
  /** What is still held back, with U+FFFD for a character that was never completed. */
  end(): string;
}

/** Control tokens that stand between the parts of a prompt whose answer fills a gap. */
export interface InfillTokens {
  readonly prefix: number;
  readonly suffix: number;
  readonly middle: number;
  /** Before the name of a repository, and before that of each of its files; undefined where the model knows none. */
  readonly repo: number | undefined;
  readonly file: number | undefined;
}

export interface Tokenizer {
  readonly vocabSize: number;
  readonly bosToken: number | undefined;
  readonly eosToken: number | undefined;
  /** What the file fills batches with, where it says. */
  readonly padToken: number | undefined;
  /** What stands between two texts that are read together, and after them (SEP). */
  readonly separatorToken: number | undefined;
  /** Every token that ends a generation: EOS, end of turn, end of message. */
  readonly endTokens: ReadonlySet<number>;
  /** undefined where the vocabulary has none. */
  readonly infill: InfillTokens | undefined;
  encode(text: string, options?: EncodeOptions): number[];
  /** Throws RangeError for what is no token id. */
  decode(tokens: Iterable<number>, options?: DecodeOptions): string;
  /** The raw bytes that a token stands for (logprobs' `bytes`); empty for control tokens. */
  bytes(token: number): Uint8Array;
  isControl(token: number): boolean;
  /** What it gives, put together, is what `decode` gives with the same options. */
  streamDecoder(options?: DecodeOptions): StreamDecoder;
}

/** A text in which marks stand that are tokens where the vocabulary has them. No request's JSON can be one. */
export class MarkedText {
  constructor(readonly pieces: readonly (string | { readonly mark: string })[]) {}
}

/** `written`, a MarkedText, stands in the place of the content. */
export interface ChatMessage {
  role: string;
  content: string | null | { type: string; text?: string }[];
  [key: string]: unknown;
}

export interface ChatTemplateOptions {
  /** End with the head of the assistant's turn. Default true. */
  addGenerationPrompt?: boolean;
  tools?: unknown[];
  /** Extra variables for the template (`chat_template_kwargs`), e.g. `enable_thinking`. */
  variables?: Record<string, unknown>;
  /** `encode` throws TooManyTokens where the prompt has more. */
  atMost?: number;
  /** The prompt ends before the last place where this text stands; ChatTemplateError where it does not stand. */
  endBefore?: string;
}

/** An invalid template, or one that cannot or will not render a conversation. */
export class ChatTemplateError extends Error {
  override name = "ChatTemplateError";
}

export interface ChatTemplate {
  /** In Jinja, as in the model's file, or what stands in for a file without one. */
  readonly source: string;
  /** The variant for conversations with tools, where the file has one. */
  readonly toolSource?: string;
  /** The prompt's text, for people to read. Throws ChatTemplateError with the template's reason. */
  render(messages: readonly ChatMessage[], options?: ChatTemplateOptions): string;
  /**
   * The prompt's tokens: control tokens are those that the template writes, and what messages, tools and variables
   * say stays text even where it spells one. BOS comes first where the file asks for it, once, whether or not the
   * template writes it too; EOS is not added. Throws ChatTemplateError, and TooManyTokens.
   */
  encode(messages: readonly ChatMessage[], options?: ChatTemplateOptions): number[];
}

/** How a query and a document become the prompt of a model that ranks. */
export interface RankTemplate {
  /** Throws TooManyTokens where the prompt has more than `atMost` tokens. */
  encode(query: string, document: string, atMost?: number): number[];
}

/** Names that templates get from the program or from Jinja, never from a request. */
export const RESERVED_TEMPLATE_VARIABLES = [
  "messages",
  "tools",
  "documents",
  "add_generation_prompt",
  "continue_final_message",
  "bos_token",
  "eos_token",
  "chat_template",
  "tokenize",
  "raise_exception",
  "strftime_now",
  "range",
  "namespace",
  "true",
  "false",
  "none",
  "True",
  "False",
  "None",
] as const;

/** Whether a request's variable may not have this name. */
export function isReservedVariable(name: string): boolean {
  return (RESERVED_TEMPLATE_VARIABLES as readonly string[]).includes(name);
}
