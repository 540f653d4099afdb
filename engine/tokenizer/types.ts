/** The tokenizer's types for the rest of the engine. Token ids are indices into `tokenizer.ggml.tokens`. */

export interface EncodeOptions {
  /** Whether to add BOS and EOS as the file's `add_bos_token` and `add_eos_token` say. Default false. */
  addSpecial?: boolean;
  /**
   * Whether to recognise control tokens, such as `<|im_end|>`, in the text. Default false: untrusted text stays text.
   */
  parseSpecial?: boolean;
  /** Whether the text is a prompt with marks (literal_marks.ts), which are removed after control tokens are found. */
  marked?: boolean;
  /** Maximum number of tokens. A longer text throws TooManyTokens before all its tokens are counted. */
  atMost?: number;
}

/** Thrown if a text has too many tokens: at least `atLeast`. */
export class TooManyTokens extends Error {
  override name = "TooManyTokens";
  constructor(readonly atLeast: number) {
    super(`The text has at least ${atLeast} tokens`);
  }
}

export interface DecodeOptions {
  /** Whether to include the text of control tokens. Default false. */
  special?: boolean;
  /**
   * Whether the tokens continue a prompt. By default they are a whole text, and SentencePiece's blank before the first
   * word is removed.
   */
  continuation?: boolean;
}

export interface StreamDecoder {
  /** Returns the text that this token completes: whole characters. Invalid bytes become U+FFFD once. */
  push(token: number): string;
  /** Ends the stream. Returns the remaining text, with U+FFFD for an incomplete character. */
  end(): string;
}

/** Control tokens between the parts of a fill-in-the-middle prompt. */
export interface InfillTokens {
  readonly prefix: number;
  readonly suffix: number;
  readonly middle: number;
  /** Tokens before a repository's name and before each file's name; undefined if the model has none. */
  readonly repo: number | undefined;
  readonly file: number | undefined;
}

export interface Tokenizer {
  readonly vocabSize: number;
  readonly bosToken: number | undefined;
  readonly eosToken: number | undefined;
  /** The file's padding token, if any. */
  readonly padToken: number | undefined;
  /** The token between and after two texts that are read together (SEP). */
  readonly separatorToken: number | undefined;
  /** All tokens that end a generation: EOS, end of turn, end of message. */
  readonly endTokens: ReadonlySet<number>;
  /** Tokens for fill-in-the-middle prompts; undefined if the vocabulary has none. */
  readonly infill: InfillTokens | undefined;
  encode(text: string, options?: EncodeOptions): number[];
  /** Returns the text of the tokens. Throws RangeError for an invalid token id. */
  decode(tokens: Iterable<number>, options?: DecodeOptions): string;
  /** Returns the raw bytes of a token (logprobs' `bytes`); empty for control tokens. */
  bytes(token: number): Uint8Array;
  isControl(token: number): boolean;
  /** Returns a streaming decoder, whose joined output equals `decode` with the same options. */
  streamDecoder(options?: DecodeOptions): StreamDecoder;
}

/** A text with marks, which become tokens if the vocabulary has them. A request's JSON cannot contain a MarkedText. */
export class MarkedText {
  constructor(readonly pieces: readonly (string | { readonly mark: string })[]) {}
}

/** If `written` is a MarkedText, it replaces the content. Parts have the type "text" or, in messages of users and tools, "image". */
export interface ChatMessage {
  role: string;
  content: string | null | { type: string; text?: string }[];
  [key: string]: unknown;
}

export interface ChatTemplateOptions {
  /** Whether the prompt ends with the header of the assistant's turn. Default true. */
  addGenerationPrompt?: boolean;
  tools?: unknown[];
  /** Extra variables for the template (`chat_template_kwargs`), e.g. `enable_thinking`. */
  variables?: Record<string, unknown>;
  /** Maximum tokens of the prompt. Above it, `encode` throws TooManyTokens. */
  atMost?: number;
  /** Text before whose last occurrence the prompt ends. Throws ChatTemplateError if it does not occur. */
  endBefore?: string;
}

/** Thrown for an invalid chat template, and if a template fails or refuses to render a conversation. */
export class ChatTemplateError extends Error {
  override name = "ChatTemplateError";
}

export interface ChatTemplate {
  /** The Jinja template of the model's file, or the default for a file without one. */
  readonly source: string;
  /** The template's variant for conversations with tools, if any. */
  readonly toolSource?: string;
  /** Whether the template shows a system message, found by trial. */
  readonly takesSystem: boolean;
  /** Returns the prompt as readable text. Throws ChatTemplateError with the template's reason. */
  render(messages: readonly ChatMessage[], options?: ChatTemplateOptions): string;
  /**
   * Returns the prompt's tokens. Only the template writes control tokens; messages, tools and variables stay text even
   * if they spell one. If the file wants BOS, it comes first and only once. EOS is not added. Throws ChatTemplateError
   * and TooManyTokens.
   */
  encode(messages: readonly ChatMessage[], options?: ChatTemplateOptions): number[];
}

/** Builds the prompt of a ranking model from a query and a document. */
export interface RankTemplate {
  /** Returns the ranking prompt's tokens. Throws TooManyTokens if there are more than `atMost`. */
  encode(query: string, document: string, atMost?: number): number[];
}

/** Template variables that only the program or Jinja defines, never a request. */
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

/** Returns whether a request's variables must not use this name. */
export function isReservedVariable(name: string): boolean {
  return (RESERVED_TEMPLATE_VARIABLES as readonly string[]).includes(name);
}
