/** Prepares JSON schemas for llguidance. Every keyword is checked, so that none is silently ignored. */

import { FORMATS } from "./formats.ts";
import { isWritable, rustPattern } from "./ecma_pattern.ts";
import { areExclusive } from "./exclusive.ts";
import { LIMITS } from "./limits.ts";
import { keepInward } from "./number_bounds.ts";
import { ConstraintError } from "./types.ts";

/** JSON is written as Python's json.dumps does, the form that models have seen most. */
const WRITING = {
  whitespace_flexible: false,
  item_separator: ", ",
  key_separator: ": ",
  // Without \uXXXX a text has one spelling, so two different keys can never look alike.
  json_allowed_escapes: 'nrbtf\\"',
};

type Schema = Readonly<Record<string, unknown>>;

/** Keywords with one schema per name. */
const MAPS = ["properties", "patternProperties", "$defs", "definitions"];
/** Keywords with a list of schemas. */
const LISTS = ["anyOf", "oneOf", "allOf", "prefixItems"];
/** Keywords with one schema. */
const SINGLES = ["items", "additionalProperties", "additionalItems"];
/** Keywords that are passed on unchanged. */
const PLAIN = [
  "const",
  "enum",
  "type",
  "required",
  "minItems",
  "maxItems",
  "minProperties",
  "maxProperties",
  "minLength",
  "maxLength",
  "minimum",
  "maximum",
  "exclusiveMinimum",
  "exclusiveMaximum",
  "multipleOf",
];
/** Keywords that restrict values but are not supported, each with a test for values that restrict nothing. */
const UNSUPPORTED: Readonly<Record<string, (value: unknown, schema: Schema) => boolean>> = {
  not: () => false,
  if: (_, schema) => !("then" in schema) && !("else" in schema),
  then: (_, schema) => !("if" in schema),
  else: (_, schema) => !("if" in schema),
  contains: () => false,
  minContains: (_, schema) => !("contains" in schema),
  maxContains: (_, schema) => !("contains" in schema),
  uniqueItems: (value) => value === false,
  propertyNames: allowsAllTexts,
  dependentRequired: isEmpty,
  dependentSchemas: isEmpty,
  dependencies: isEmpty,
  unevaluatedItems: (value) => value === true,
  unevaluatedProperties: (value) => value === true,
  $dynamicRef: () => false,
  $recursiveRef: () => false,
};
const UNWRITTEN = "has a character that answers do not write: they are without \\uXXXX";
/** The drafts in which `items` may be a list. */
const OLD_DRAFTS = /^https?:\/\/json-schema\.org\/draft(-0[67]|\/2019-09)\/schema#?$/;
/** Bounds beyond this are not exact. */
const LARGEST = Number.MAX_SAFE_INTEGER;
/** The library's expressions count no further. */
const MOST_CHARACTERS = 2 ** 32 - 1;
/** Keywords with counts, and their maximum. */
const COUNTS = {
  minLength: MOST_CHARACTERS,
  maxLength: MOST_CHARACTERS,
  minItems: LARGEST,
  maxItems: LARGEST,
  minProperties: LARGEST,
  maxProperties: LARGEST,
};

/**
 * Returns the schema to compile. Throws ConstraintError with the path of an unsupported keyword, or of a reference to
 * a place outside the schema: nothing is ever fetched.
 */
export function compilableSchema(schema: unknown): unknown {
  const reader = new Reader(schema);
  const read = reader.read(schema, []);
  reader.checkReferences();
  return typeof read === "boolean"
    ? (read ? { "x-guidance": WRITING } : false)
    : { "x-guidance": WRITING, ...read };
}

/** Names are always texts, so `type: "string"` restricts nothing. Schema generators write it for every record. */
function allowsAllTexts(schema: unknown): boolean {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return schema === true;
  return Object.entries(schema).every(([keyword, value]) => keyword === "type" && value === "string");
}

class Reader {
  /** JSON pointers of all schemas that were read. */
  readonly #schemas = new Set<string>();
  readonly #anchors = new Map<string, string>();
  readonly #references: { path: readonly string[]; target: string }[] = [];
  readonly #base: string | undefined;

  readonly #root: unknown;

  constructor(root: unknown) {
    this.#root = root;
    const id = (root as Schema | null)?.["$id"];
    if (typeof id === "string") this.#base = id.replace(/#$/, "");
  }

  read(schema: unknown, path: readonly string[]): boolean | Record<string, unknown> {
    this.#schemas.add(pointer(path));
    if (typeof schema === "boolean") return schema;
    if (typeof schema !== "object" || schema === null || Array.isArray(schema)) {
      throw refused(path, "must be an object or a boolean");
    }
    const result: Record<string, unknown> = {};
    for (const [keyword, value] of Object.entries(schema as Schema)) {
      const kept = this.#keyword(keyword, value, schema as Schema, path);
      if (kept !== undefined) define(result, keyword, kept);
    }
    checkNumbers(schema as Schema, path);
    checkCounts(schema as Schema, path);
    Object.assign(result, boundsOfMultiples(schema as Schema, path));
    keepInward(result);
    checkProperties(schema as Schema, path);
    const { oneOf } = schema as Schema;
    if (Array.isArray(oneOf) && areExclusive(oneOf, this.#root)) {
      if ("anyOf" in result) result.allOf = [...(result.allOf as unknown[] ?? []), { anyOf: result.oneOf }];
      else result.anyOf = result.oneOf;
      delete result.oneOf;
    }
    const patterns = patternsOf(schema as Schema, path);
    if (patterns.length === 1) result.pattern = patterns[0];
    if (patterns.length === 2) {
      result.allOf = [...(result.allOf as unknown[] ?? []), ...patterns.map((pattern) => ({ pattern }))];
    }
    return result;
  }

  /** Throws ConstraintError if a reference does not lead to a schema that was read. */
  checkReferences(): void {
    for (const { path, target } of this.#references) {
      const pointer = target === "" || target.startsWith("/") ? target : this.#anchors.get(target);
      if (pointer === undefined || !this.#schemas.has(pointer)) {
        throw refused(path, `there is no schema at ${JSON.stringify("#" + target)}`);
      }
    }
  }

  /** Returns the value to compile for a keyword; undefined if it restricts nothing. */
  #keyword(keyword: string, value: unknown, schema: Schema, path: readonly string[]): unknown {
    const at = [...path, keyword];
    if (MAPS.includes(keyword)) return this.#map(value, at);
    if (LISTS.includes(keyword) || (keyword === "items" && Array.isArray(value))) {
      return this.#list(value, at);
    }
    if (SINGLES.includes(keyword)) return this.read(value, at);
    if (keyword === "const" && !canWrite(value)) throw refused(at, UNWRITTEN);
    if (keyword === "enum" && Array.isArray(value)) return writableOf(value, at);
    if (keyword === "required" && Array.isArray(value)) { for (const name of value) checkName(name, at); }
    if (PLAIN.includes(keyword)) return value;
    if (keyword === "$ref") return this.#reference(value, at);
    if (keyword === "$schema") {
      return path.length === 0 && typeof value === "string" && OLD_DRAFTS.test(value) ? value : undefined;
    }
    if (keyword === "$id" && path.length > 0 && !String(value).startsWith("#")) {
      throw refused(at, "is supported at the schema's root only");
    }
    if (keyword === "$anchor" && typeof value === "string") {
      this.#anchors.set(value, pointer(path));
      return value;
    }
    const saysNothing = Object.hasOwn(UNSUPPORTED, keyword) ? UNSUPPORTED[keyword] : undefined;
    if (saysNothing && !saysNothing(value, schema)) throw refused(at, "is not supported");
    return undefined;
  }

  #map(value: unknown, path: readonly string[]): Record<string, unknown> {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw refused(path, "must be an object");
    }
    const most = path.at(-1) === "patternProperties" ? LIMITS.patternProperties : LIMITS.properties;
    const entries = Object.entries(value);
    if (entries.length > most) {
      throw refused(path, `must have at most ${most} members (got ${entries.length})`);
    }
    const result: Record<string, unknown> = {};
    for (const [name, schema] of entries) {
      checkName(name, path);
      const key = path.at(-1) === "patternProperties" ? pattern(name, [...path, name]) : name;
      define(result, key, this.read(schema, [...path, name]));
    }
    return result;
  }

  #list(value: unknown, path: readonly string[]): unknown[] {
    if (!Array.isArray(value)) throw refused(path, "must be a list");
    return value.map((schema, i) => this.read(schema, [...path, String(i)]));
  }

  #reference(value: unknown, path: readonly string[]): string {
    if (typeof value !== "string") throw refused(path, "must be a string");
    const hash = value.indexOf("#");
    const base = hash < 0 ? value : value.slice(0, hash);
    if (base !== "" && base !== this.#base) {
      throw refused(path, "must lead to a place in the schema itself: nothing is fetched");
    }
    const fragment = hash < 0 ? "" : value.slice(hash + 1);
    let target: string;
    try {
      target = decodeURIComponent(fragment);
    } catch {
      throw refused(path, "is not a valid reference");
    }
    this.#references.push({ path, target });
    return `#${fragment}`;
  }
}

/** Throws ConstraintError if the name is not well-formed text, because no answer can contain it. */
function checkName(name: unknown, path: readonly string[]): void {
  if (typeof name === "string" && !name.isWellFormed()) throw refused(path, "has half a surrogate pair");
}

/** Returns the values of an `enum` that answers can write. For others, the library would drop characters. */
function writableOf(values: readonly unknown[], path: readonly string[]): unknown[] {
  const writable = values.filter(canWrite);
  if (writable.length === 0 && values.length > 0) throw refused(path, UNWRITTEN);
  return writable;
}

function canWrite(value: unknown): boolean {
  if (typeof value === "string") return isWritable(value);
  if (typeof value !== "object" || value === null) return true;
  return Object.entries(value).every(([name, inner]) => name.isWellFormed() && canWrite(inner));
}

/** Returns `pattern` and `format` as patterns. */
function patternsOf(schema: Schema, path: readonly string[]): string[] {
  const patterns: string[] = [];
  if ("pattern" in schema) patterns.push(pattern(schema.pattern, [...path, "pattern"]));
  if ("format" in schema) {
    const { format } = schema;
    const found = typeof format === "string" ? FORMATS.get(format) : undefined;
    if (found === undefined) {
      throw refused(
        [...path, "format"],
        `must be one of ${[...FORMATS.keys()].join(", ")} (got ${show(format)})`,
      );
    }
    patterns.push(found);
  }
  return patterns;
}

function pattern(value: unknown, path: readonly string[]): string {
  if (typeof value !== "string") throw refused(path, "must be a string");
  try {
    return rustPattern(value);
  } catch (error) {
    if (error instanceof SyntaxError) throw refused(path, error.message);
    throw error;
  }
}

function checkNumbers(schema: Schema, path: readonly string[]): void {
  for (const keyword of ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]) {
    if (!(keyword in schema)) continue;
    const value = schema[keyword];
    if (typeof value !== "number" || Math.abs(value) > LARGEST) {
      throw refused(
        [...path, keyword],
        `must be a number from -${LARGEST} to ${LARGEST} (got ${show(value)})`,
      );
    }
  }
}

function checkCounts(schema: Schema, path: readonly string[]): void {
  for (const [keyword, most] of Object.entries(COUNTS)) {
    if (!(keyword in schema)) continue;
    const value = schema[keyword];
    if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= most) continue;
    throw refused([...path, keyword], `must be a whole number from 0 to ${most} (got ${show(value)})`);
  }
}

/**
 * Every reader agrees on multiples only where doubles are exact: for multiples with few binary digits, up to a bound.
 */
function boundsOfMultiples(schema: Schema, path: readonly string[]): Record<string, number> {
  const { multipleOf } = schema;
  if (multipleOf === undefined) return {};
  const at = [...path, "multipleOf"];
  if (typeof multipleOf !== "number" || !(multipleOf > 0 && multipleOf <= LARGEST)) {
    throw refused(at, `must be a number above 0, at most ${LARGEST} (got ${show(multipleOf)})`);
  }
  if (!Number.isInteger(multipleOf * 1024)) {
    throw refused(
      at,
      `must be a whole number, or a binary fraction such as 0.5 or 0.125 (got ${multipleOf})`,
    );
  }
  const most = Number.isInteger(multipleOf) ? LARGEST : 2 ** 40;
  return {
    ...("minimum" in schema || "exclusiveMinimum" in schema ? {} : { minimum: -most }),
    ...("maximum" in schema || "exclusiveMaximum" in schema ? {} : { maximum: most }),
  };
}

/** Refuses counts that cannot be enforced: unlisted keys may come twice, and optional keys may be missing. */
function checkProperties(schema: Schema, path: readonly string[]): void {
  const { minProperties, maxProperties, patternProperties, additionalProperties } = schema;
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  if (required.size > LIMITS.properties) {
    throw refused(
      [...path, "required"],
      `must have at most ${LIMITS.properties} names (got ${required.size})`,
    );
  }
  const listed = Object.keys(schema.properties ?? {});
  for (const [keyword, value] of Object.entries({ minProperties, maxProperties })) {
    if (value !== undefined && listed.some((name) => !required.has(name))) {
      throw refused([...path, keyword], "is supported only where all properties are required");
    }
  }
  const open = additionalProperties !== false || !isEmpty(patternProperties ?? {});
  const least = required.size + (listed.length === 0 && required.size === 0 ? 1 : 0);
  if (typeof minProperties === "number" && open && minProperties > least) {
    throw refused(
      [...path, "minProperties"],
      `must be at most ${least} where other properties may come (got ${minProperties})`,
    );
  }
}

/** Sets an own property, even if the name is `__proto__`. */
function define(object: Record<string, unknown>, name: string, value: unknown): void {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}

function pointer(path: readonly string[]): string {
  return path.map((part) => "/" + part.replaceAll("~", "~0").replaceAll("/", "~1")).join("");
}

function refused(path: readonly string[], what: string): ConstraintError {
  const place = path.length === 0 ? "The schema" : `The schema's ${show(pointer(path))}`;
  return new ConstraintError(`${place} ${what}`);
}

function isEmpty(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

/** Returns a short text for messages. */
function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 100 ? text.slice(0, 100).toWellFormed() + "…" : text;
}
