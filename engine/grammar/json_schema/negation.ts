/** Expresses the keyword `not` if it excludes values, types or a pattern. */

import { allBut, mismatches } from "../pattern/rust_pattern.ts";
import { type Findings, isSchema, type Path, type Schema } from "./findings.ts";

const TYPES = ["null", "boolean", "number", "string", "array", "object"];
const NOTES = ["title", "description", "$comment", "default", "examples"];

/**
 * Returns a schema for all values that `not` allows, for an `allOf`; undefined if it allows everything or is loosened.
 */
export function negationOf(schema: Schema, path: Path, findings: Findings): Schema | boolean | undefined {
  const { not } = schema;
  const at = [...path, "not"];
  if (not === true) return false;
  if (not === false || not === undefined) return undefined;
  const keywords = isSchema(not) ? Object.keys(not).filter((key) => !NOTES.includes(key)) : ["not"];
  if (keywords.length === 0) return false;
  const { type, pattern, required, ...rest } = isSchema(not) ? not : {};
  const values = "const" in rest ? [rest.const] : Array.isArray(rest.enum) ? rest.enum : undefined;
  const types = [schema.type ?? TYPES].flat() as string[];
  const is = (...names: string[]) => keywords.every((key) => names.includes(key));
  try {
    // A value that `type` already excludes needs no further exclusion.
    const excluded = values?.filter((value) => type === undefined || isOf(value, [type].flat() as string[]));
    if (excluded && (is("const", "type") || is("enum", "type"))) return valuesBut(excluded, types);
    if (is("type")) {
      const others = typesBut([type].flat() as string[]);
      if (others) return { type: others };
    }
    if (is("type", "pattern") && typeof pattern === "string" && (type ?? "string") === "string") {
      const others = mismatches(pattern, findings.patterns);
      return anyOf(types, "string", others === undefined ? [] : [{ type: "string", pattern: others }]);
    }
    if (
      is("type", "required") && Array.isArray(required) && required.length === 1 &&
      (type ?? "object") === "object"
    ) {
      return anyOf(types, "object", [{ type: "object", properties: { [String(required[0])]: false } }]);
    }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return void findings.refuse(at, error.message);
  }
  findings.refuse(at, "is supported with a const, an enum, types or a pattern only");

  function valuesBut(excluded: readonly unknown[], types: readonly string[]): Schema | false {
    if (excluded.some((value) => typeof value === "object" && value !== null && isOf(value, types))) {
      throw new SyntaxError("cannot exclude lists and objects");
    }
    const numbers = excluded.filter((value) => typeof value === "number");
    const texts = excluded.filter((value) => typeof value === "string");
    const booleans = [true, false].filter((value) => !excluded.includes(value));
    const numeric = types.includes("integer") && !types.includes("number") ? "integer" : "number";
    const parts: Readonly<Record<string, Schema[]>> = {
      null: excluded.includes(null) ? [] : [{ type: "null" }],
      boolean: booleans.length > 0 ? [{ enum: booleans }] : [],
      number: between(numbers, numeric),
      integer: between(numbers, numeric),
      string: [
        texts.length === 0 ? { type: "string" } : {
          type: "string",
          pattern: allBut(texts, findings.patterns),
        },
      ],
      array: [{ type: "array" }],
      object: [{ type: "object" }],
    };
    const allowed = [...new Set(types)].flatMap((type) => parts[type] ?? []);
    return allowed.length > 0 && { anyOf: allowed };
  }
}

/** Returns ranges of all numbers except the given ones. */
function between(numbers: readonly number[], type: string): Schema[] {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const edges = [undefined, ...sorted, undefined];
  return edges.slice(1).map((high, i) => ({
    type,
    ...(edges[i] === undefined ? {} : { exclusiveMinimum: edges[i] }),
    ...(high === undefined ? {} : { exclusiveMaximum: high }),
  })).filter(({ exclusiveMinimum: low, exclusiveMaximum: high }) => {
    return type === "number" || low === undefined || high === undefined || high - low > 1;
  });
}

/** Returns a schema for any of `types`, where values of `type` must match one of `parts`. */
function anyOf(types: readonly string[], type: string, parts: readonly Schema[]): Schema {
  const others = types.filter((other) => other !== type);
  return { anyOf: [...others.map((other) => ({ type: other })), ...types.includes(type) ? parts : []] };
}

/** Returns all types except the given ones; undefined if "integer" is excluded without "number". */
function typesBut(types: readonly string[]): string[] | undefined {
  if (types.includes("integer") && !types.includes("number")) return undefined;
  return TYPES.filter((type) => !types.includes(type));
}

/** Returns whether a value has one of the types. */
export function isOf(value: unknown, types: readonly string[]): boolean {
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  return types.includes(type) || (types.includes("integer") && Number.isInteger(value));
}
