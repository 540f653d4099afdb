/** Converts constraints into llguidance's input: a list of grammars. The first one is the answer's. */

import { larkOfGbnf } from "./gbnf_to_lark.ts";
import { compilableLark } from "./lark.ts";
import { checkSize } from "./limits.ts";
import { compilableSchema } from "./schema.ts";
import { type Constraint, ConstraintError } from "./types.ts";

export interface Source {
  readonly name: string;
  readonly lark_grammar?: string;
  readonly json_schema?: unknown;
}

const ROOT = "answer";

/** Returns the grammars of a constraint. Throws ConstraintError if it is refused before compilation. */
export function grammarsOf(constraint: Constraint): Source[] {
  checkSize(constraint);
  const sources: Source[] = [];
  add(constraint, ROOT, sources);
  return sources;
}

function add(constraint: Constraint, name: string, sources: Source[]): void {
  switch (constraint.kind) {
    case "json_schema":
      sources.push({ name, json_schema: compilableSchema(constraint.schema) });
      break;
    case "regex":
      checkText(constraint.pattern);
      sources.push({ name, lark_grammar: `start: ${larkRegex(constraint.pattern)}` });
      break;
    case "choice":
      if (constraint.choices.length === 0) throw new ConstraintError("choices must have at least one text");
      constraint.choices.forEach(checkText);
      // One terminal: a lexer handles thousands of choices, but a parser would try each.
      sources.push({
        name,
        lark_grammar: `start: CHOICE\nCHOICE: ${constraint.choices.map(larkString).join(" | ")}`,
      });
      break;
    case "lark":
      checkText(constraint.grammar);
      sources.push({ name, lark_grammar: compilableLark(constraint.grammar) });
      for (const [part, inner] of Object.entries(constraint.parts ?? {})) add(inner, part, sources);
      break;
    case "gbnf":
      sources.push({ name, lark_grammar: larkOfGbnf(constraint.grammar) });
      break;
  }
}

/** Returns a regex between slashes, escaped as Lark requires. */
function larkRegex(pattern: string): string {
  const escaped = pattern.replace(
    /\\[\s\S]|[\s\S]/gu,
    (unit) => unit === "/" ? "\\/" : unit === "\n" ? "\\n" : unit,
  );
  return `/${escaped}/`;
}

/** Throws ConstraintError if the text is not well-formed: no answer can contain it. */
function checkText(text: string): void {
  if (!text.isWellFormed()) {
    throw new ConstraintError("The constraint has half a surrogate pair, which is no text");
  }
}

/** Returns a Lark string; its syntax is that of JSON strings. */
function larkString(text: string): string {
  return JSON.stringify(text);
}
