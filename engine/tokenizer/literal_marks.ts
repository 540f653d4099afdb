import type { TokenFinder } from "./token_finder.ts";

/**
 * A chat template pastes people's text between its control tokens, and the prompt is then read with control tokens
 * recognised: `<|im_end|>` in a message would end the message. So a mark is put into such texts before the template
 * sees them, and taken out after the control tokens have been recognised, before the rest is encoded.
 */
const MARK = "\ufdd0"; // a noncharacter, which is not for interchange between programs

/** The text with marks that break up what looks like one of the tokens; a mark in the text itself is doubled. */
export function addMarks(text: string, tokens: TokenFinder): string {
  const doubled = text.replaceAll(MARK, MARK + MARK);
  let marked = "";
  let done = 0;
  for (const start of tokens.starts(doubled)) {
    const inside = start + String.fromCodePoint(doubled.codePointAt(start)!).length;
    marked += doubled.slice(done, inside) + MARK;
    done = inside;
  }
  return marked + doubled.slice(done);
}

/** The text without the marks that `addMarks` put into it. */
export function stripMarks(text: string): string {
  return text.includes(MARK) ? text.replaceAll(/\ufdd0(\ufdd0?)/g, "$1") : text;
}
