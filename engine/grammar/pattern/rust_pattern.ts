/** Translates patterns of JSON schema into expressions that the grammar library can read. */

import { type Budget, expressionOf, spend } from "./automaton.ts";
import { isPattern, rustPattern } from "./ecma_pattern.ts";
import { literalPattern, parsePattern } from "./parse.ts";

/** Pattern that finds look-around or word boundaries. It skips escaped backslashes first. */
const LOOKS = /^(?:\\[^bB]|[^\\])*?(?:\\[bB]|\(\?(?:<?[=!]))/s;
/** Pattern of a look-behind for one character or class at the end. */
const LOOK_BEHIND_AT_END = /\(\?<([=!])(\[(?:\\.|[^\]\\])+\]|\\[dDsSwW]|[\w-])\)\$$/;

/**
 * Returns expressions in Rust's syntax that together match the same texts as the pattern. Patterns from Python may
 * begin with (?i). Throws SyntaxError for an invalid pattern, and for one without an exact translation.
 */
export function rustPatterns(source: string, budget: Budget): string[] {
  const ignoreCase = source.startsWith("(?i)");
  const pattern = ignoreCase ? source.slice(4) : source;
  // In a class, \b is a character and not a word boundary.
  const looks = LOOKS.test(pattern.replaceAll(/\[(?:\\.|[^\]\\])*\]/gs, "x"));
  if (!looks) return [ignoreCase ? `(?i:${rustPattern(pattern)})` : rustPattern(pattern)];
  if (!isPattern(pattern)) rustPattern(pattern);
  return lookingPatterns(pattern, ignoreCase, budget);
}

function lookingPatterns(pattern: string, ignoreCase: boolean, budget: Budget): string[] {
  spend(budget, pattern.length);
  const tree = parsePattern(pattern, ignoreCase);
  const parts = tree.type === "choice" ? undefined : ahead(pattern) ?? behind(pattern);
  if (!parts) return [expressionOf(tree, budget) ?? rustPattern("[]")];
  const prefix = ignoreCase ? "(?i)" : "";
  const rest = rustPatterns(prefix + parts.rest, budget);
  if (!parts.negative) return [...rustPatterns(prefix + parts.looked, budget), ...rest];
  const other = expressionOf(parsePattern(parts.looked, ignoreCase), budget, true);
  return [other ?? rustPattern("[]"), ...rest];
}

interface Parts {
  /** A further pattern that must match, or must not match if `negative`. */
  readonly looked: string;
  readonly negative: boolean;
  readonly rest: string;
}

/** Splits a look-ahead from the pattern's start, so that the rest needs no automaton of the whole pattern. */
function ahead(pattern: string): Parts | undefined {
  if (!/^\^\(\?[=!]/.test(pattern)) return undefined;
  const unit = /\\[\s\S]|\[(?:\\[\s\S]|[^\]\\])*\]|[\s\S]/gu;
  unit.lastIndex = 1;
  let depth = 0;
  for (let match = unit.exec(pattern); match; match = unit.exec(pattern)) {
    if (match[0] === "(") depth++;
    if (match[0] !== ")" || --depth > 0) continue;
    const rest = pattern.slice(unit.lastIndex);
    // A look-ahead with a repetition may be optional.
    if (/^[*+?{]/.test(rest)) return undefined;
    const looked = `^(?:${pattern.slice(4, unit.lastIndex - 1)})`;
    return { looked, negative: pattern[3] === "!", rest: `^${rest}` };
  }
}

/** Splits a look-behind from the pattern's end. */
function behind(pattern: string): Parts | undefined {
  const match = LOOK_BEHIND_AT_END.exec(pattern);
  if (!match || pattern[match.index - 1] === "\\") return undefined;
  return {
    looked: `(?:${match[2]})$`,
    negative: match[1] === "!",
    rest: `${pattern.slice(0, match.index)}$`,
  };
}

/** Returns an expression for all texts except the given ones. Throws Inexact if it would be too large. */
export function allBut(texts: readonly string[], budget: Budget): string {
  spend(budget, texts.reduce((sum, { length }) => sum + length, 0));
  const options = texts.map(literalPattern);
  const edges = (["start", "end"] as const).map((at) => ({ type: "edge", at }) as const);
  const whole = { type: "sequence", items: [edges[0], { type: "choice", options }, edges[1]] } as const;
  return expressionOf(whole, budget, true)!;
}

/** Returns an expression for all texts in which the pattern does not match; undefined if there are none. */
export function mismatches(source: string, budget: Budget): string | undefined {
  const ignoreCase = source.startsWith("(?i)");
  const pattern = ignoreCase ? source.slice(4) : source;
  if (!isPattern(pattern)) rustPattern(pattern);
  return expressionOf(parsePattern(pattern, ignoreCase), budget, true);
}
