import { type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";

/** Functions for texts that may be as long as a whole request: they pause regularly. */

/** Appends the tokens of a long piece. Stops once there are more than `atMost` tokens. */
export function* appendAll(piece: ArrayLike<number>, tokens: number[], atMost: number): Paced<void> {
  for (let i = 0; i < piece.length && tokens.length <= atMost; i++) {
    tokens.push(piece[i]);
    if (i % STEPS_PER_OFFER === 0) yield;
  }
}

/**
 * Returns the characters of a piece, and the symbol of each by `symbolOf`. A character at i without a symbol gets -2 -
 * i.
 */
export function* symbolsOf(
  piece: string,
  symbolOf: (character: string) => number | undefined,
): Paced<{ characters: string[]; symbols: Int32Array }> {
  const characters: string[] = [];
  for (const character of piece) {
    characters.push(character);
    if (characters.length % STEPS_PER_OFFER === 0) yield;
  }
  const symbols = new Int32Array(characters.length);
  for (let i = 0; i < symbols.length; i++) {
    symbols[i] = symbolOf(characters[i]) ?? -2 - i;
    if (i % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
  }
  return { characters, symbols };
}

/** Number of UTF-16 units to process before a possible pause. */
const UNITS_PER_OFFER = 1 << 13;

/** Returns the text with each `from`, one UTF-16 unit, replaced by `to`. */
export function* replaced(text: string, from: string, to: string): Paced<string> {
  let result = "";
  for (let start = 0; start < text.length; start += UNITS_PER_OFFER) {
    if (start > 0) yield;
    // replaceAll is avoided: its result in V8 is a chain of many small strings, which takes seconds to read.
    result += text.slice(start, start + UNITS_PER_OFFER).split(from).join(to);
  }
  return result;
}
