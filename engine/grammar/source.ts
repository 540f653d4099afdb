/** Converts constraints into llguidance's input: a list of grammars, of which the first describes the answer. */

import { withPauses } from "../pacing/pauses.ts";
import { larkOfGbnf } from "./gbnf_to_lark.ts";
import { compilableLark } from "./lark.ts";
import { compilableSchema } from "./json_schema/schema.ts";
import { type Constraint, ConstraintError, type LoosenedSchema } from "./types.ts";

export interface Source {
  readonly name: string;
  readonly lark_grammar?: string;
  readonly json_schema?: unknown;
}

const ROOT = "answer";

export interface Sources {
  readonly grammars: readonly Source[];
  readonly loosened: readonly LoosenedSchema[];
}

/** Returns how far to loosen a tool's schema (`SchemaUse.level`). */
export type LevelOf = (schema: LooseSchema) => number;
export type LooseSchema = Extract<Constraint, { kind: "json_schema" }>;

/**
 * Returns the grammars of a constraint whose size was checked. Throws ConstraintError if it is refused before
 * compilation.
 */
export async function grammarsOf(constraint: Constraint, levelOf: LevelOf = () => 0): Promise<Sources> {
  const found: Found = { grammars: [], loosened: [] };
  await add(constraint, ROOT, found, levelOf);
  return found;
}

interface Found {
  readonly grammars: Source[];
  readonly loosened: LoosenedSchema[];
}

/** Returns the schemas of a constraint that may be loosened. */
export function looseSchemas(constraint: Constraint): LooseSchema[] {
  if (constraint.kind === "lark") return Object.values(constraint.parts ?? {}).flatMap(looseSchemas);
  return constraint.kind === "json_schema" && constraint.looseFor !== undefined ? [constraint] : [];
}

async function add(constraint: Constraint, name: string, found: Found, levelOf: LevelOf): Promise<void> {
  const { grammars: sources } = found;
  switch (constraint.kind) {
    case "json_schema": {
      const { closed, looseFor: tool } = constraint;
      const use = { closed, loose: tool !== undefined, level: tool === undefined ? 0 : levelOf(constraint) };
      const { schema, loosened: keywords } = await withPauses(() => compilableSchema(constraint.schema, use));
      sources.push({ name, json_schema: schema });
      if (tool !== undefined && keywords.length > 0) found.loosened.push({ tool, keywords });
      break;
    }
    case "regex":
      checkText(constraint.pattern);
      sources.push({ name, lark_grammar: `start: ${larkRegex(constraint.pattern)}` });
      break;
    case "choice":
      if (constraint.choices.length === 0) throw new ConstraintError("choices must have at least one text");
      constraint.choices.forEach(checkText);
      // The choices form one terminal: a lexer handles thousands of choices, but a parser would try each.
      sources.push({
        name,
        lark_grammar: `start: CHOICE\nCHOICE: ${constraint.choices.map(larkString).join(" | ")}`,
      });
      break;
    case "lark":
      checkText(constraint.grammar);
      sources.push({ name, lark_grammar: compilableLark(constraint.grammar) });
      found.loosened.push(...constraint.loosened ?? []);
      for (const [part, inner] of Object.entries(constraint.parts ?? {})) {
        await add(inner, part, found, levelOf);
      }
      break;
    case "gbnf":
      sources.push({ name, lark_grammar: larkOfGbnf(constraint.grammar) });
      break;
  }
}

/** Returns a regular expression between slashes, escaped as Lark requires. */
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
    throw new ConstraintError("The constraint has half a surrogate pair, which is not valid text");
  }
}

/** Returns a Lark string; its syntax is that of JSON strings. */
function larkString(text: string): string {
  return JSON.stringify(text);
}
