/** Constraints as llguidance takes them: a list of grammars, of which the first is the answer's. */

import { compilableSchema } from "./schema.ts";
import { type Constraint, ConstraintError } from "./types.ts";

export interface Source {
  readonly name: string;
  readonly lark_grammar?: string;
  readonly json_schema?: unknown;
}

const ROOT = "answer";

/** Throws ConstraintError for what is refused before it is compiled. */
export function grammarsOf(constraint: Constraint): Source[] {
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
      sources.push({ name, lark_grammar: `start: ${larkRegex(constraint.pattern)}` });
      break;
    case "choice":
      if (constraint.choices.length === 0) throw new ConstraintError("choices must have at least one text");
      sources.push({ name, lark_grammar: `start: ${constraint.choices.map(larkString).join(" | ")}` });
      break;
    case "lark":
      sources.push({ name, lark_grammar: constraint.grammar });
      for (const [part, inner] of Object.entries(constraint.parts ?? {})) add(inner, part, sources);
      break;
    case "gbnf":
      throw new ConstraintError("GBNF grammars are not supported yet");
  }
}

/** A regex between slashes, which Lark wants escaped. */
function larkRegex(pattern: string): string {
  const escaped = pattern.replace(
    /\\[\s\S]|[\s\S]/gu,
    (unit) => unit === "/" ? "\\/" : unit === "\n" ? "\\n" : unit,
  );
  return `/${escaped}/`;
}

export function larkString(text: string): string {
  return JSON.stringify(text);
}
