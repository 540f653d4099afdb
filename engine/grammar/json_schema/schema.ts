/** Prepares JSON schemas for llguidance. Every keyword is checked, so that none is silently ignored. */

import { finish, type Paced } from "../../pacing/pauses.ts";
import { LIMITS } from "../limits.ts";
import { coarse, withoutUnused } from "./coarse.ts";
import { composes, isAlone, sharesReferences } from "./composition.ts";
import { readDistinct } from "./distinct.ts";
import { areExclusive, at } from "./exclusive.ts";
import {
  define,
  Findings,
  isEmpty,
  isSchema,
  type Path,
  pointer,
  refused,
  type Schema,
  show,
} from "./findings.ts";
import { negationOf } from "./negation.ts";
import { readNumbers } from "./numbers.ts";
import { readProperties } from "./objects.ts";
import { checkName, patternsOf, translated, writableOf } from "./strings.ts";

/** JSON is written as in Python's json.dumps, the form that models have seen most. */
const WRITING = {
  whitespace_flexible: false,
  item_separator: ", ",
  key_separator: ": ",
  // Without \uXXXX escapes, a text has one spelling, so two different keys never look alike.
  json_allowed_escapes: 'nrbtf\\"',
};

/** Keywords with one schema per name. */
const MAPS = ["properties", "patternProperties", "$defs", "definitions"];
/** Keywords with a list of schemas. */
const LISTS = ["anyOf", "oneOf", "allOf", "prefixItems"];
/** Keywords with one schema. */
const SINGLES = ["items", "additionalProperties", "additionalItems"];
/** Schema keywords that are passed on unchanged. */
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
  if: (_, schema) => !("then" in schema) && !("else" in schema),
  then: (_, schema) => !("if" in schema),
  else: (_, schema) => !("if" in schema),
  contains: () => false,
  minContains: (_, schema) => !("contains" in schema),
  maxContains: (_, schema) => !("contains" in schema),
  dependentRequired: isEmpty,
  dependentSchemas: isEmpty,
  dependencies: isEmpty,
  unevaluatedItems: (value) => value === true,
  $dynamicRef: () => false,
  $recursiveRef: () => false,
};
const TYPES = ["null", "boolean", "number", "integer", "string", "array", "object"];
/** Keywords for which null is a value. */
const NULLABLE = ["const", "default"];
/** Pattern of the JSON schema drafts in which `items` may be a list. */
const OLD_DRAFTS = /^https?:\/\/json-schema\.org\/draft(-0[67]|\/2019-09)\/schema#?$/;
/** Upper limit of counts: no answer has more characters, items or properties. */
const MOST = 1_000_000;
const COUNTS = ["Length", "Items", "Properties"];
/** Name of the definition that accepts any value, with bounds on its numbers. */
const ANY = "compy any value";
const ANY_VALUE = { $ref: `#/$defs/${encodeURIComponent(ANY)}` };

/** Number of nested schemas that are read before the work may pause. */
const SCHEMAS_PER_OFFER = 32;

/** The coarsest level of a loose schema: it accepts any object. */
export const COARSEST = 3;

export interface SchemaUse {
  /** Whether an object must not have properties that its schema does not list, unless the schema allows them. */
  readonly closed?: boolean;
  /** Whether the grammar may accept more than the schema if it cannot express a keyword. */
  readonly loose?: boolean;
  /** Level of a loose schema: 0 enforces every keyword that can be expressed; COARSEST accepts any object. */
  readonly level?: number;
}

export interface CompilableSchema {
  readonly schema: unknown;
  /** Pointers of loosened keywords; "" for the whole schema. */
  readonly loosened: readonly string[];
}

/**
 * Returns the schema to compile. Throws ConstraintError with the path of an unsupported keyword, or of a reference to a
 * place outside the schema, unless it may be loosened. Nothing is ever fetched.
 */
export function compilableSchema(given: unknown, use: SchemaUse = {}): CompilableSchema {
  return finish(compiling(given, use));
}

function* compiling(given: unknown, use: SchemaUse): Paced<CompilableSchema> {
  const { closed = false, loose = false, level = 0 } = use;
  const findings = new Findings(loose, level > 0);
  const pruned = loose ? withoutUnused(given) : given;
  const schema = level === COARSEST ? { type: "object" } : level === 2 ? coarse(pruned) : pruned;
  const reader = new Reader(schema, findings, closed);
  const read = yield* reader.read(schema, [], true);
  reader.checkReferences();
  const loosened = level < 2 ? findings.loosened : [""];
  if (typeof read === "boolean") return { schema: read ? { "x-guidance": WRITING } : false, loosened };
  const any = reader.usesAny ? { $defs: { ...read.$defs as Schema, [ANY]: anyValue() } } : {};
  return { schema: { "x-guidance": WRITING, ...read, ...any }, loosened };
}

function anyValue(): Schema {
  const number: Record<string, unknown> = { type: "number" };
  readNumbers({ type: "number" }, number, [], new Findings(false), { fraction: true });
  const others = ["null", "boolean", "string"].map((type) => ({ type }));
  return {
    anyOf: [...others, number, { type: "array", items: ANY_VALUE }, {
      type: "object",
      additionalProperties: ANY_VALUE,
    }],
  };
}

class Reader {
  usesAny = false;
  /** JSON pointers of all schemas that were read. */
  readonly #schemas = new Set<string>();
  readonly #anchors = new Map<string, string>();
  readonly #references: { path: Path; target: string; holder: Record<string, unknown> }[] = [];
  readonly #base: string | undefined;
  readonly #composes: boolean;
  readonly #sharesReferences: boolean;

  constructor(
    private readonly root: unknown,
    private readonly findings: Findings,
    private readonly closed: boolean,
  ) {
    const id = (root as Schema | null)?.["$id"];
    if (typeof id === "string") this.#base = id.replace(/#$/, "");
    this.#composes = closed && composes(root);
    this.#sharesReferences = closed && sharesReferences(root);
  }

  /** Reads a schema. `alone`: whether no other schema describes the same value's properties. */
  *read(given: unknown, path: Path, alone: boolean): Paced<boolean | Record<string, unknown>> {
    this.#schemas.add(pointer(path));
    if (this.#schemas.size % SCHEMAS_PER_OFFER === 0) yield;
    if (typeof given === "boolean") return given && path.length > 0 ? this.#any() : given;
    if (!isSchema(given)) {
      this.findings.refuse(path, "must be an object or a boolean");
      return true;
    }
    const schema = withoutNulls(given);
    const result: Record<string, unknown> = {};
    for (const [keyword, value] of Object.entries(schema)) {
      const kept = yield* this.#keyword(keyword, value, schema, path, result, alone);
      if (kept !== undefined) define(result, keyword, kept);
    }
    if (Object.keys(schema).every((keyword) => keyword === "$ref") && "$ref" in result) return result;
    this.#checkCounts(result, path);
    if (this.findings.onlyPatterns) this.#dropLengths(schema, result, path);
    readNumbers(schema, result, path, this.findings, { fraction: this.closed && !this.#composes });
    readProperties(schema, result, path, this.findings, this.closed && alone);
    readDistinct(schema, result, path, this.findings, (reference) => at(this.root, reference));
    this.#readOneOf(schema, result, path, alone);
    this.#readParts(schema, result, path);
    if (path.length > 0 && Object.keys(result).length === 0) return this.#any();
    if (this.closed) this.#guardInside(result);
    return result;
  }

  /** Throws for a reference that leads to no schema that was read. */
  checkReferences(): void {
    for (const { path, target, holder } of this.#references) {
      const pointer = target === "" || target.startsWith("/") ? target : this.#anchors.get(target);
      if (pointer !== undefined && this.#schemas.has(pointer)) continue;
      this.findings.refuse(path, `there is no schema at ${JSON.stringify("#" + target)}`);
      delete holder.$ref;
    }
  }

  /** Returns a schema for any value. In tool arguments, its numbers have bounds. */
  #any(): true | Record<string, unknown> {
    if (!this.closed || this.#composes) return true;
    this.usesAny = true;
    return { ...ANY_VALUE };
  }

  /** Bounds numbers inside lists and objects whose members may be any value. */
  #guardInside(result: Record<string, unknown>): void {
    const any = this.#any();
    if (any === true) return;
    const types = [result.type].flat();
    if (types.includes("array") && !("enum" in result)) {
      if (!("items" in result)) result.items = any;
    }
    if (types.includes("object") && !("enum" in result)) result.additionalProperties ??= any;
  }

  /** Drops the lengths of a string with a pattern: the library cannot always tell whether a text satisfies both. */
  #dropLengths(schema: Schema, result: Record<string, unknown>, path: Path): void {
    if (schema.pattern === undefined) return;
    for (const keyword of ["minLength", "maxLength"].filter((keyword) => keyword in result)) {
      this.findings.refuse([...path, keyword], "is not supported beside a pattern");
      delete result[keyword];
    }
  }

  /** Turns a `oneOf` into an `anyOf` if its schemas exclude each other, or if it may be loosened. */
  #readOneOf(schema: Schema, result: Record<string, unknown>, path: Path, alone: boolean): void {
    const { oneOf } = schema;
    if (!Array.isArray(oneOf) || !("oneOf" in result)) return;
    const closed = this.closed && !this.#sharesReferences && isAlone(schema, "oneOf", alone);
    if (!areExclusive(oneOf, { root: this.root, closed, budget: this.findings.comparisons })) {
      if (!this.findings.mayLoosen) return;
      this.findings.refuse([...path, "oneOf"], "may have more than one valid schema");
    }
    if ("anyOf" in result) addPart(result, { anyOf: result.oneOf });
    else result.anyOf = result.oneOf;
    delete result.oneOf;
  }

  /** Adds the schemas that express `not`, `pattern` and `format`. */
  #readParts(schema: Schema, result: Record<string, unknown>, path: Path): void {
    const patterns = patternsOf(schema, path, this.findings);
    if (patterns.length === 1) result.pattern = patterns[0];
    else for (const pattern of patterns) addPart(result, { pattern });
    const values = result.enum;
    if (Array.isArray(values) && isSchema(schema.not)) {
      const excluded = "const" in schema.not ? [schema.not.const] : schema.not.enum;
      if (Array.isArray(excluded) && Object.keys(schema.not).length === 1) {
        const texts = new Set(excluded.map((value) => JSON.stringify(value)));
        result.enum = values.filter((value) => !texts.has(JSON.stringify(value)));
        return;
      }
    }
    const negation = negationOf(schema, path, this.findings);
    if (negation !== undefined) addPart(result, negation);
  }

  /** Returns the value to compile for a keyword; undefined if it restricts nothing, or is read elsewhere. */
  *#keyword(
    keyword: string,
    value: unknown,
    schema: Schema,
    path: Path,
    result: Record<string, unknown>,
    alone: boolean,
  ): Paced<unknown> {
    const at = [...path, keyword];
    if (MAPS.includes(keyword)) return yield* this.#map(value, at);
    if (LISTS.includes(keyword) || (keyword === "items" && Array.isArray(value))) {
      return yield* this.#list(value, at, isAlone(schema, keyword, alone));
    }
    if (SINGLES.includes(keyword)) return yield* this.read(value, at, true);
    if (keyword === "const") return writableOf([value], at, this.findings)?.[0];
    if (keyword === "enum") {
      if (Array.isArray(value)) return writableOf(value, at, this.findings);
      return this.findings.refuse(at, "must be a list");
    }
    if (keyword === "required") return this.#names(value, at);
    if (keyword === "type") return this.#types(value, at);
    if (PLAIN.includes(keyword)) return value;
    if (keyword === "$ref") return this.#reference(value, at, result);
    if (keyword === "$schema") {
      return path.length === 0 && typeof value === "string" && OLD_DRAFTS.test(value) ? value : undefined;
    }
    if (keyword === "$id" && path.length > 0 && !String(value).startsWith("#")) {
      return this.findings.refuse(at, "is supported at the schema's root only");
    }
    if (keyword === "$anchor" && typeof value === "string") {
      this.#anchors.set(value, pointer(path));
      return value;
    }
    const saysNothing = Object.hasOwn(UNSUPPORTED, keyword) ? UNSUPPORTED[keyword] : undefined;
    if (saysNothing && !saysNothing(value, schema)) this.findings.refuse(at, "is not supported");
    return undefined;
  }

  *#map(value: unknown, path: Path): Paced<Record<string, unknown> | undefined> {
    if (!isSchema(value)) return void this.findings.refuse(path, "must be an object");
    const keyword = path.at(-1)!;
    const isPatterns = keyword === "patternProperties";
    const most = isPatterns ? LIMITS.patternProperties : LIMITS.properties;
    const entries = Object.entries(value);
    if (entries.length > most) {
      return void this.findings.refuse(path, `must have at most ${most} members (got ${entries.length})`);
    }
    const alone = !keyword.startsWith("def") && keyword !== "$defs" || !this.#sharesReferences;
    const result: Record<string, unknown> = {};
    for (const [name, schema] of entries) {
      if (!checkName(name, path, this.findings)) continue;
      const keys = isPatterns ? this.#patternKey(name, [...path, name]) : name;
      if (keys !== undefined) define(result, keys, yield* this.read(schema, [...path, name], alone));
    }
    return result;
  }

  #patternKey(pattern: string, path: Path): string | undefined {
    const patterns = translated(pattern, path, this.findings);
    if (!patterns || patterns.length === 1) return patterns?.[0];
    this.findings.refuse(path, "has look-around, which is not supported here");
  }

  *#list(value: unknown, path: Path, alone: boolean): Paced<unknown[] | undefined> {
    if (!Array.isArray(value)) return void this.findings.refuse(path, "must be a list");
    const schemas: unknown[] = [];
    for (const [i, schema] of value.entries()) {
      schemas.push(yield* this.read(schema, [...path, String(i)], alone));
    }
    return schemas;
  }

  #names(value: unknown, path: Path): unknown {
    if (!Array.isArray(value)) return void this.findings.refuse(path, "must be a list");
    return value.filter((name) => checkName(name, path, this.findings));
  }

  #types(value: unknown, path: Path): unknown {
    const unknown = [value].flat().find((type) => typeof type !== "string" || !TYPES.includes(type));
    if (unknown === undefined) return value;
    this.findings.refuse(path, `must be of ${TYPES.join(", ")} (got ${show(unknown)})`);
  }

  #reference(value: unknown, path: Path, holder: Record<string, unknown>): string | undefined {
    if (typeof value !== "string") return void this.findings.refuse(path, "must be a string");
    const hash = value.indexOf("#");
    const base = hash < 0 ? value : value.slice(0, hash);
    if (base !== "" && base !== this.#base) {
      const what = "must lead to a place in the schema itself: nothing is fetched";
      return void this.findings.refuse(path, what);
    }
    const fragment = hash < 0 ? "" : value.slice(hash + 1);
    let target: string;
    try {
      target = decodeURIComponent(fragment);
    } catch {
      return void this.findings.refuse(path, "is not a valid reference");
    }
    this.#references.push({ path, target, holder });
    return `#${fragment}`;
  }

  /**
   * Checks counts such as `minItems`. Throws ConstraintError for a count that no answer can reach, even if the schema
   * may be loosened.
   */
  #checkCounts(result: Record<string, unknown>, path: Path): void {
    for (const what of COUNTS) {
      for (const keyword of [`min${what}`, `max${what}`]) {
        const value = result[keyword];
        if (value === undefined) continue;
        if (!Number.isInteger(value) || (value as number) < 0) {
          this.findings.refuse([...path, keyword], `must be a whole number from 0 (got ${show(value)})`);
          delete result[keyword];
        } else if ((value as number) > MOST) {
          if (keyword.startsWith("min")) {
            throw refused(
              [...path, keyword],
              `must be at most ${MOST}: no answer is that long (got ${show(value)})`,
              true,
            );
          }
          // No answer exceeds this maximum, so the keyword is dropped.
          delete result[keyword];
        }
      }
    }
  }
}

/** Returns the schema without keywords whose value is null. */
function withoutNulls(schema: Schema): Schema {
  const isAbsent = ([keyword, value]: [string, unknown]) => value === null && !NULLABLE.includes(keyword);
  const entries = Object.entries(schema);
  return entries.some(isAbsent) ? Object.fromEntries(entries.filter((entry) => !isAbsent(entry))) : schema;
}

function addPart(result: Record<string, unknown>, part: unknown): void {
  result.allOf = [...(result.allOf as unknown[] ?? []), part];
}
