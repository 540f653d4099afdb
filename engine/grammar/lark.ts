/** Checks untrusted Lark grammars before they are compiled. */

import { LIMITS, over } from "./limits.ts";
import { compilableSchema } from "./json_schema/schema.ts";
import { ConstraintError } from "./types.ts";

/** Pattern of a Lark grammar's tokens that the check needs; anything else is one character. */
const TOKEN =
  /"(?:\\.|[^"\\\n])*"|(?:#|\/\/)[^\n]*|\/(?:\\[\s\S]|[^/\\])+\/|%(?:json|llguidance|regex)(?![a-z])|<[^<>\s]+>|::|[0-9]+|[\s\S]/gu;

/**
 * Returns the grammar with its embedded schemas made compilable. Throws ConstraintError if the grammar is too expensive
 * to read, or if llguidance would ignore a part of the grammar.
 */
export function compilableLark(grammar: string): string {
  const result: string[] = [];
  let depth = 0, rules = 0;
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(grammar); match; match = TOKEN.exec(grammar)) {
    const [token] = match;
    if ("([{".includes(token) && ++depth > LIMITS.depth) {
      throw over("depth", "depth of nested parentheses", depth);
    }
    if (")]}".includes(token)) depth--;
    if (token === ":" && ++rules > LIMITS.rules) throw over("rules", "number of rules", rules);
    if (/^[0-9]/.test(token) && Number(token) > LIMITS.repetitions) {
      throw over("repetitions", "number of repetitions", Number(token));
    }
    result.push(token);
    if (token === "%json" || token === "%llguidance" || token === "%regex") {
      const { text, end } = jsonAt(grammar, TOKEN.lastIndex);
      result.push(
        " ",
        token === "%json" ? JSON.stringify(compilableSchema(parsed(text)).schema) : options(token, text),
      );
      TOKEN.lastIndex = end;
    }
  }
  return result.join("");
}

/** Returns the JSON text at a position, up to its closing bracket. */
function jsonAt(source: string, from: number): { text: string; end: number } {
  const start = from + /^\s*/.exec(source.slice(from))![0].length;
  const piece = /"(?:\\.|[^"\\])*"|[[{]|[\]}]|[^\s[\]{}"]+|\s+|[\s\S]/guy;
  piece.lastIndex = start;
  let depth = 0;
  for (let match = piece.exec(source); match; match = piece.exec(source)) {
    if ("[{".includes(match[0]) && ++depth > LIMITS.depth) throw over("depth", "depth of the schema", depth);
    if ("]}".includes(match[0])) depth--;
    if (depth === 0) return { text: source.slice(start, piece.lastIndex), end: piece.lastIndex };
  }
  throw new ConstraintError("The grammar ends inside a JSON text");
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ConstraintError(
      `The grammar has a JSON text that is not valid: ${JSON.stringify(text.slice(0, 100))}`,
    );
  }
}

function options(directive: string, text: string): string {
  const value = parsed(text) as Record<string, unknown> | null;
  if (directive === "%llguidance" && value?.allow_invalid_utf8) {
    throw new ConstraintError("allow_invalid_utf8 is not supported: answers are text");
  }
  return JSON.stringify(value);
}
