import { type Paced, STEPS_PER_OFFER } from "../../pacing/pauses.ts";
import type { TokenFinder } from "./token_finder.ts";

/**
 * Marks that keep untrusted text from becoming control tokens. A chat template puts messages between control
 * tokens, and the encoder then recognises control tokens in the result. A message with `<|im_end|>` would end
 * its turn. So such texts get marks before rendering. The encoder removes them after it has found the control
 * tokens.
 */
const MARK = "\ufdd0"; // a noncharacter, which texts do not contain in practice

/**
 * Returns the text with marks inside everything that looks like one of the tokens. Existing marks are
 * doubled.
 */
export function* addMarks(text: string, tokens: TokenFinder): Paced<string> {
  const doubled = text.replaceAll(MARK, MARK + MARK);
  let marked = "";
  let done = 0;
  let found = 0;
  for (const start of yield* tokens.starts(doubled)) {
    if (++found % STEPS_PER_OFFER === 0) yield;
    const inside = start + String.fromCodePoint(doubled.codePointAt(start)!).length;
    marked += doubled.slice(done, inside) + MARK;
    done = inside;
  }
  return marked + doubled.slice(done);
}

/** Removes the marks of `addMarks` from the text. */
export function stripMarks(text: string): string {
  return text.includes(MARK) ? text.replaceAll(/\ufdd0(\ufdd0?)/g, "$1") : text;
}
