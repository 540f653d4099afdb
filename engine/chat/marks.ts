import type { Tokenizer } from "../tokenizer/types.ts";

/**
 * A special piece of an answer, for example `<think>` or `[TOOL_CALLS]`. A mark is one token if the vocabulary has
 * it, else text.
 */
export interface Mark {
  readonly text: string;
  readonly token: number | undefined;
  /**
   * The mark in a reader's input: a UTF-16 unit that text never has if the mark is a token, else its text.
   */
  readonly sign: string;
  /** Texts before and after the token, which belong to the mark. */
  readonly around?: readonly [before: string, after: string];
}

/** Returns a mark that is always text, never a token. */
export function textMark(text: string): Mark {
  return { text, token: undefined, sign: text };
}

/**
 * First of the lone surrogates that represent marker tokens. In decoded text, a surrogate of this range is always the
 * second half of a pair.
 */
const FIRST_SIGN = 0xdc00;
const MOST_SIGNS = 0x400;
const SIGN = /\p{Surrogate}/gu;

/** All marks of a model's chat format. */
export class Marks {
  readonly #tokenizer: Tokenizer;
  readonly #byText = new Map<string, Mark>();
  readonly #signs = new Map<number, string>();
  /** Text of the token behind each sign, for places that read the token as text. */
  readonly #texts = new Map<string, string>();

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  /** Returns the mark with the given text. */
  mark(text: string): Mark {
    const known = this.#byText.get(text);
    if (known) return known;
    const tokens = this.encode(text);
    const token = tokens.length === 1 && this.#decode(tokens) === text ? tokens[0] : undefined;
    const mark = { text, token, sign: token === undefined ? text : this.#newSign(token) };
    this.#byText.set(text, mark);
    return mark;
  }

  /** Returns the mark that consists of texts around another mark. */
  around(before: string, { text, token, sign }: Mark, after: string): Mark {
    const whole = before + text + after;
    if (token === undefined) return textMark(whole);
    return { text: whole, token, sign: before + sign + after, around: [before, after] };
  }

  /** Returns whether the vocabulary has the text as one token. */
  isToken(text: string): boolean {
    return this.mark(text).token !== undefined;
  }

  /** Returns the tokens of template text, control tokens included. */
  encode(text: string): number[] {
    return this.#tokenizer.encode(text, { parseSpecial: true });
  }

  /** Returns a marker token's sign in a reader's input; undefined for any other token. */
  sign(token: number): string | undefined {
    return this.#signs.get(token);
  }

  /** Returns a reader's input as plain text: markers are replaced by their text. */
  plain(input: string): string {
    return input.isWellFormed() ? input : input.replaceAll(SIGN, (sign) => this.#texts.get(sign) ?? "");
  }

  #newSign(token: number): string {
    if (this.#signs.size === MOST_SIGNS) {
      throw new Error(`A chat template may have at most ${MOST_SIGNS} special tokens`);
    }
    const sign = String.fromCharCode(FIRST_SIGN + this.#signs.size);
    this.#signs.set(token, sign);
    this.#texts.set(sign, this.#tokenizer.decode([token], { continuation: true }));
    return sign;
  }

  #decode(tokens: number[]): string {
    return this.#tokenizer.decode(tokens, { special: true, continuation: true });
  }
}
