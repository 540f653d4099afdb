/** Constraints as llguidance takes them: a list of grammars, of which the first is the answer's. */

import { type Constraint, ConstraintError } from "./types.ts";

export interface Source {
  readonly name: string;
  readonly lark_grammar?: string;
  readonly json_schema?: unknown;
}

/** How JSON is written: as Python's json.dumps does by default, which is what models have seen most of. */
const JSON_OPTIONS = { whitespace_flexible: false, item_separator: ", ", key_separator: ": " };

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
      sources.push({ name, json_schema: jsonSchema(constraint.schema) });
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

function jsonSchema(schema: unknown): unknown {
  if (typeof schema === "boolean") return schema ? { "x-guidance": JSON_OPTIONS } : schema;
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) {
    throw new ConstraintError("The schema must be an object or a boolean");
  }
  const { "x-guidance": _, ...rest } = schema as Record<string, unknown>;
  return { "x-guidance": JSON_OPTIONS, ...rest };
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
