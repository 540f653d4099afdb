/** The tokens that stand for an image in a prompt. */
import type { ImageTokens } from "../api/request.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { Tiles } from "./scaling.ts";

/** The tokens of an image in a prompt, as the processor of the family writes them. */
export interface ImageText {
  /** The token that chat templates write for an image. */
  readonly mark: string;
  /** The tokens that chat templates write directly before and after the mark. */
  readonly around?: readonly [before: string, after: string];
  /** The token that stands for one of the tower's rows. Vocabularies without it have `mark` instead. */
  readonly row: string;
  /** Whether rows have places in a grid for rotary tables (M-RoPE). */
  readonly grid?: true;
  /** Whether rows of an image attend to each other in both directions. */
  readonly together?: true;
  /** Number of line ends before the image, and after it. */
  readonly lines?: number;
  /** Returns texts and numbers of rows, in order. `rows` and `columns` are those of a tile. */
  readonly parts: (
    image: { readonly rows: number; readonly columns: number; readonly tiles?: Tiles },
  ) => readonly (string | number)[];
}

/** Returns the token's id; undefined if the vocabulary has no such token. */
export function tokenOf(tokenizer: Tokenizer, text: string): number | undefined {
  const tokens = tokenizer.encode(text, { parseSpecial: true });
  return tokens.length === 1 ? tokens[0] : undefined;
}

/** Returns the image's tokens. */
export function tokensFor(
  image: Parameters<ImageText["parts"]>[0],
  text: ImageText,
  tokenizer: Tokenizer,
): ImageTokens {
  const mark = tokenOf(tokenizer, text.mark)!;
  const row = tokenOf(tokenizer, text.row) ?? mark;
  const tokens: number[] = [];
  const runs: { first: number; count: number }[] = [];
  let words = "";
  const write = () => {
    for (const token of tokenizer.encode(words, { parseSpecial: true })) tokens.push(token);
    words = "";
  };
  for (const part of text.parts(image)) {
    if (typeof part === "string") words += part;
    else {
      write();
      runs.push({ first: tokens.length, count: part });
      for (let i = 0; i < part; i++) tokens.push(row);
    }
  }
  write();
  const { grid = false, together = false, lines = 0 } = text;
  return { mark, tokens, runs, grid, together, lines };
}
