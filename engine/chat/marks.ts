import type { Tokenizer } from "../tokenizer/types.ts";

/** A piece of an answer that is no text: `<think>`, `[TOOL_CALLS]`. One token where the vocabulary has it, else its text. */
export interface Mark {
  readonly text: string;
  readonly token: number | undefined;
  /** How it stands in a reader's input: a unit that no text has where it is a token, else its text. */
  readonly sign: string;
}

/** A mark that is text in every vocabulary. */
export function textMark(text: string): Mark {
  return { text, token: undefined, sign: text };
}

/** Lone surrogates stand for marker tokens: no decoded text has them, but as second halves of pairs. */
const FIRST_SIGN = 0xdc00;
const MOST_SIGNS = 0x400;
const SIGN = /\p{Surrogate}/gu;

/** The marks of one model. */
export class Marks {
  readonly #tokenizer: Tokenizer;
  readonly #byText = new Map<string, Mark>();
  readonly #signs = new Map<number, string>();
  /** What the token of each sign is where it turns up as text. */
  readonly #texts = new Map<string, string>();

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  /** The mark that is written so. */
  mark(text: string): Mark {
    const known = this.#byText.get(text);
    if (known) return known;
    const tokens = this.encode(text);
    const token = tokens.length === 1 && this.#decode(tokens) === text ? tokens[0] : undefined;
    const mark = { text, token, sign: token === undefined ? text : this.#newSign(token) };
    this.#byText.set(text, mark);
    return mark;
  }

  /** Whether the vocabulary has it as one token. */
  isToken(text: string): boolean {
    return this.mark(text).token !== undefined;
  }

  /** The tokens of a text that templates write, with control tokens. */
  encode(text: string): number[] {
    return this.#tokenizer.encode(text, { parseSpecial: true });
  }

  /** How a marker token stands in a reader's input; undefined for any other token. */
  sign(token: number): string | undefined {
    return this.#signs.get(token);
  }

  /** A reader's input as text: a marker that has a meaning elsewhere only is the text that it shows. */
  plain(input: string): string {
    return input.isWellFormed() ? input : input.replaceAll(SIGN, (sign) => this.#texts.get(sign) ?? "");
  }

  #newSign(token: number): string {
    if (this.#signs.size === MOST_SIGNS) throw new Error(`A model may have at most ${MOST_SIGNS} marks`);
    const sign = String.fromCharCode(FIRST_SIGN + this.#signs.size);
    this.#signs.set(token, sign);
    this.#texts.set(sign, this.#tokenizer.decode([token], { continuation: true }));
    return sign;
  }

  #decode(tokens: number[]): string {
    return this.#tokenizer.decode(tokens, { special: true, continuation: true });
  }
}
