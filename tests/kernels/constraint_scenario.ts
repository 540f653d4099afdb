import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { createGrammars } from "../../engine/grammar/grammars.ts";
import { randomAnswer, randomFrom } from "../../engine/grammar/testing.ts";
import { ConstraintError } from "../../engine/grammar/types.ts";
import type { Tokenizer } from "../../engine/tokenizer/types.ts";
import { HOSTILES } from "./constraint_hostiles.ts";
import { KEYWORDS, keywordsOf, randomSchema, SCHEMAS } from "./constraint_schemas.ts";

/** Answers for which no token could follow. */

export interface SchemaFigures {
  schemas: number;
  refused: { schema: unknown; message: string }[];
  whole: number;
  cut: number;
  /** No token could follow. */
  failed: { schema: unknown; text: string }[];
  invalid: { schema: unknown; text: string; why: string }[];
  /** Keywords that no compiled schema has. */
  unused: string[];
}

/** Answers `count` schemas, `answers` times each. */
export async function answerSchemas(
  tokenizer: Tokenizer,
  { count, answers, seed, most = 300 }: { count: number; answers: number; seed: number; most?: number },
): Promise<SchemaFigures> {
  const random = randomFrom(seed);
  const grammars = createGrammars(tokenizer);
  const figures: SchemaFigures = {
    schemas: 0,
    refused: [],
    whole: 0,
    cut: 0,
    failed: [],
    invalid: [],
    unused: [],
  };
  const used = new Set<string>();
  for (let i = 0; figures.schemas < count; i++) {
    const schema = i < SCHEMAS.length ? SCHEMAS[i] : randomSchema(random);
    const constraint = { kind: "json_schema", schema } as const;
    try {
      await grammars.compile(constraint);
    } catch (error) {
      if (!(error instanceof ConstraintError)) throw error;
      figures.refused.push({ schema, message: error.message });
      continue;
    }
    figures.schemas++;
    keywordsOf(schema, used);
    const judge = judgeOf(schema);
    for (let j = 0; j < answers; j++) {
      const { text, end } = await randomAnswer(grammars, tokenizer, constraint, random, most);
      if (end === "length") figures.cut++;
      else if (end === "failed") figures.failed.push({ schema, text });
      else {
        figures.whole++;
        const why = judge(text);
        if (why !== undefined) figures.invalid.push({ schema, text, why });
      }
    }
  }
  figures.unused = KEYWORDS.filter((keyword) => !used.has(keyword));
  grammars.close();
  return figures;
}

/** Returns the error of a text, or nothing if it is valid. */
export function judgeOf(schema: unknown): (text: string) => string | undefined {
  const ajv = new Ajv2020({ strict: false, allErrors: true, multipleOfPrecision: 9 });
  formats.default(ajv);
  const { $schema: old, ...rest } = typeof schema === "object" ? schema as Record<string, unknown> : {};
  const validate = ajv.compile(old ? asNew(rest) : schema as Record<string, unknown>);
  return (text) => {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      return String(error);
    }
    return validate(value) ? undefined : ajv.errorsText(validate.errors);
  };
}

/** Converts a schema of an older draft, with a list in `items`, to 2020-12. */
function asNew({ items, additionalItems, ...rest }: Record<string, unknown>): Record<string, unknown> {
  return { ...rest, prefixItems: items, items: additionalItems };
}

export interface HostileFigures {
  readonly compiled: number;
  readonly refused: number;
  /** Constraints that took longer than `within`, with their milliseconds. */
  readonly late: readonly string[];
  /** Memory growth of the process in bytes; with `--expose-gc` without garbage. */
  readonly grown: number;
}

/** Compiles each hostile constraint, and generates random tokens if it is accepted. */
export async function compileHostiles(
  tokenizer: Tokenizer,
  within: number,
  { most = 20, tell = () => {} }: { most?: number; tell?: (line: string) => void } = {},
): Promise<HostileFigures> {
  const grammars = createGrammars(tokenizer);
  await grammars.compile({ kind: "regex", pattern: "a" });
  const random = randomFrom(5);
  // JavaScript's heap does not grow from here on.
  for (const [, make] of HOSTILES) make();
  const before = resident();
  const late: string[] = [];
  let compiled = 0, refused = 0;
  for (const [what, make] of HOSTILES) {
    const constraint = make();
    const start = performance.now();
    let outcome: string;
    try {
      await grammars.compile(constraint);
      outcome = "compiled";
      compiled++;
    } catch (error) {
      if (!(error instanceof ConstraintError)) throw error;
      outcome = error.message.replaceAll(/\s+/g, " ");
      refused++;
    }
    const time = performance.now() - start;
    if (time > within) late.push(`${what}: ${Math.round(time)} ms`);
    if (outcome === "compiled") {
      const answering = performance.now();
      const { tokens, end } = await randomAnswer(grammars, tokenizer, constraint, random, most);
      const each = (performance.now() - answering) / Math.max(tokens.length, 1);
      outcome += `, then ${end} after ${tokens.length} tokens of ${each.toFixed(1)} ms`;
    }
    tell(`${what}: ${Math.round(time)} ms, ${mebibytes(resident() - before)} MiB, ${outcome}`);
  }
  // The library still serves other requests.
  await grammars.compile({ kind: "json_schema", schema: { type: "integer" } });
  const grown = resident() - before;
  grammars.close();
  return { compiled, refused, late, grown };
}

function resident(): number {
  (globalThis as { gc?: () => void }).gc?.();
  return Deno.memoryUsage().rss;
}

export function mebibytes(bytes: number): number {
  return Math.round(bytes / 2 ** 20);
}
