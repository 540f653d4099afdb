import { type Paced, STEPS_PER_OFFER } from "../../pacing/pauses.ts";
import { replaced } from "../long_pieces.ts";
import type { TokenFinder } from "./token_finder.ts";

/**
 * Marks that keep untrusted text from becoming control tokens. A chat template puts messages between control tokens,
 * and the encoder then recognises control tokens in the result. A message with `<|im_end|>` would end its turn.
 * Therefore marks are put into such texts before rendering, and the encoder removes the marks after it has found the
 * control tokens.
 */
const MARK = "\ufdd0"; // a noncharacter, which texts do not contain in practice

/** Returns the text with marks inside everything that spells one of the tokens. Existing marks are doubled. */
export function* addMarks(text: string, tokens: TokenFinder): Paced<string> {
  const doubled = text.includes(MARK) ? yield* replaced(text, MARK, MARK + MARK) : text;
  const starts = yield* tokens.starts(doubled);
  let marked = "";
  let parts: string[] = [];
  let done = 0;
  for (const start of starts) {
    const inside = start + String.fromCodePoint(doubled.codePointAt(start)!).length;
    parts.push(doubled.slice(done, inside), MARK);
    done = inside;
    if (parts.length < STEPS_PER_OFFER) continue;
    marked += parts.join("");
    parts = [];
    yield;
  }
  return marked + parts.join("") + doubled.slice(done);
}

/** Removes the marks of `addMarks` from the text. */
export function* stripMarks(text: string): Paced<string> {
  let stripped = "";
  let parts: string[] = [];
  let done = 0;
  for (let at = text.indexOf(MARK); at >= 0; at = text.indexOf(MARK, done)) {
    const isDoubled = text[at + 1] === MARK;
    parts.push(text.slice(done, isDoubled ? at + 1 : at));
    done = at + (isDoubled ? 2 : 1);
    if (parts.length < STEPS_PER_OFFER) continue;
    stripped += parts.join("");
    parts = [];
    yield;
  }
  return stripped + parts.join("") + text.slice(done);
}
