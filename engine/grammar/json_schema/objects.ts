/** Rewrites object keywords that the library does not support. */

import { LIMITS } from "../limits.ts";
import { rustPatterns } from "../pattern/rust_pattern.ts";
import { define, type Findings, isEmpty, isSchema, type Path, type Schema } from "./findings.ts";
import { FORMATS } from "./formats.ts";

/** Keywords that may add rules about an object's properties. */
const MORE_PROPERTIES = ["allOf", "anyOf", "oneOf", "$ref", "if", "then", "else", "dependentSchemas"];

/**
 * Returns whether only `properties` determines an object's names. `unevaluatedProperties` then equals
 * `additionalProperties`.
 */
export function isSelfContained(schema: Schema): boolean {
  return MORE_PROPERTIES.every((keyword) => {
    const value = schema[keyword];
    return value === undefined || [value].flat().every(namesNothing);
  });
}

/** Returns whether a schema beside `properties` cannot allow more properties, for example `{"required": ["a"]}`. */
function namesNothing(schema: unknown): boolean {
  return isSchema(schema) && !("properties" in schema) && !("patternProperties" in schema) &&
    !("additionalProperties" in schema) && MORE_PROPERTIES.every((keyword) => !(keyword in schema));
}

/**
 * Translates `propertyNames` and `unevaluatedProperties`. Closes objects of tool arguments that list their properties.
 */
export function readProperties(
  schema: Schema,
  result: Record<string, unknown>,
  path: Path,
  findings: Findings,
  mayClose: boolean,
): void {
  const { unevaluatedProperties: rest } = schema;
  const isOwn = isSelfContained(schema);
  if (rest !== undefined && rest !== true && !isEmpty(rest)) {
    if (rest === false && isOwn) result.additionalProperties ??= false;
    else findings.refuse([...path, "unevaluatedProperties"], "is not supported here");
  }
  const isListed = result.properties !== undefined && result.patternProperties === undefined;
  if (
    mayClose && isOwn && isListed && schema.propertyNames === undefined && !("additionalProperties" in result)
  ) {
    // A required property that the schema does not describe may have any value.
    const unlisted = unlistedOf(result).map((name) => [name, true]);
    result.properties = { ...Object.fromEntries(unlisted), ...result.properties as object };
    result.additionalProperties = false;
  }
  readNames(schema, result, [...path, "propertyNames"], findings);
  if (findings.mayLoosen && result.additionalProperties === false && !("patternProperties" in result)) {
    const unlisted = unlistedOf(result);
    if (unlisted.length > 0) {
      findings.refuse([...path, "required"], "names properties that the schema does not allow");
      result.required = (result.required as unknown[]).filter((name) => !unlisted.includes(name as string));
    }
  }
  checkCounts(result, path, findings);
}

/** Returns the required names that are not among the properties. */
function unlistedOf({ required, properties = {} }: Schema): string[] {
  const names = Array.isArray(required) ? required : [];
  return names.filter((name) => typeof name === "string" && !Object.hasOwn(properties as object, name));
}

/** Expresses `propertyNames` by other object keywords. */
function readNames(schema: Schema, result: Record<string, unknown>, path: Path, findings: Findings): void {
  const names = namesOf(schema.propertyNames, path, findings);
  if (names === undefined) return;
  const others = result.additionalProperties ?? true;
  if (others === true || isSchema(others)) {
    if (!isEmpty(result.patternProperties ?? {})) {
      return findings.refuse(path, "is not supported beside patternProperties");
    }
    if (names.texts === undefined && names.pattern.length > 1) {
      return findings.refuse(path, "is supported with one pattern only");
    }
    result.additionalProperties = false;
  }
  const properties: Record<string, unknown> = {};
  for (const [name, own] of Object.entries(result.properties ?? {})) {
    define(properties, name, names.allows(name) ? own : false);
  }
  if (result.additionalProperties === false && others !== false) {
    if (names.texts) {
      for (const name of names.texts) if (!Object.hasOwn(properties, name)) define(properties, name, others);
    } else result.patternProperties = { [names.pattern[0]]: others };
  }
  if (!isEmpty(properties)) result.properties = properties;
}

interface Names {
  /** All allowed names, if the schema lists them. */
  readonly texts?: readonly string[];
  readonly pattern: readonly string[];
  readonly allows: (name: string) => boolean;
}

/** Returns the names that `propertyNames` allows; undefined if it allows all or is loosened. */
function namesOf(schema: unknown, path: Path, findings: Findings): Names | undefined {
  if (schema === undefined || schema === true) return undefined;
  if (schema === false) return { texts: [], pattern: [], allows: () => false };
  const { type, title: _, description: __, $comment: ___, ...rest } = isSchema(schema) ? schema : {};
  const keywords = Object.keys(rest).filter((key) => key !== "format" || FORMATS.has(String(rest.format)));
  if (keywords.length === 0 && (type === undefined || type === "string")) return undefined;
  const texts = "const" in rest ? [rest.const] : rest.enum;
  if (Array.isArray(texts) && keywords.length === 1) {
    const listed = new Set(texts.filter((text) => typeof text === "string" && text.isWellFormed()));
    return { texts: [...listed], pattern: [], allows: (name) => listed.has(name) };
  }
  const known = keywords.every((key) => ["pattern", "format", "minLength", "maxLength"].includes(key));
  if (!known || keywords.length !== (("minLength" in rest && "maxLength" in rest) ? 2 : 1)) {
    return void findings.refuse(path, "is supported with an enum, a const, a pattern, a format or a length");
  }
  const { pattern, format, minLength = 0, maxLength = Infinity } = rest;
  const source = typeof pattern === "string"
    ? pattern
    : format
    ? FORMATS.get(String(format))!
    : `^[\\s\\S]{${Number(minLength)},${maxLength === Infinity ? "" : Number(maxLength)}}$`;
  try {
    const flags = source.startsWith("(?i)") ? "iu" : "u";
    const tester = new RegExp(source.replace(/^\(\?i\)/, ""), flags);
    const translated = rustPatterns(source, findings.patterns);
    return { pattern: translated, allows: (name) => tester.test(name) };
  } catch (error) {
    if (error instanceof SyntaxError) return void findings.refuse(path, error.message);
    throw error;
  }
}

/**
 * Refuses or loosens property counts that cannot be enforced: unlisted keys may come twice, and optional keys may be
 * missing.
 */
function checkCounts(result: Record<string, unknown>, path: Path, findings: Findings): void {
  const { minProperties, maxProperties, patternProperties, additionalProperties } = result;
  const required = new Set(Array.isArray(result.required) ? result.required : []);
  if (required.size > LIMITS.properties) {
    findings.refuse(
      [...path, "required"],
      `must have at most ${LIMITS.properties} names (got ${required.size})`,
    );
    delete result.required;
  }
  const listed = Object.keys(result.properties ?? {});
  for (const [keyword, value] of Object.entries({ minProperties, maxProperties })) {
    if (value === undefined || listed.every((name) => required.has(name))) continue;
    if (keyword === "maxProperties" && additionalProperties === false && isEmpty(patternProperties ?? {})) {
      if ((value as number) >= new Set([...listed, ...required]).size) {
        delete result.maxProperties;
        continue;
      }
    }
    if (keyword === "minProperties" && (value as number) <= required.size) {
      delete result.minProperties;
      continue;
    }
    // Of the optional properties, the library can only distinguish none, one and several.
    const closed = additionalProperties === false && isEmpty(patternProperties ?? {});
    const [least, most] = [minProperties ?? 0, maxProperties ?? required.size + 1].map((count) =>
      (count as number) - required.size
    );
    if (closed && least <= 1 && most === 1) continue;
    findings.refuse([...path, keyword], "is supported only where all properties are required");
    delete result[keyword];
  }
  const open = additionalProperties !== false || !isEmpty(patternProperties ?? {});
  const least = required.size + (listed.length === 0 && required.size === 0 ? 1 : 0);
  if (typeof result.minProperties === "number" && open && result.minProperties > least) {
    findings.refuse(
      [...path, "minProperties"],
      `must be at most ${least}, because other properties are allowed (got ${minProperties})`,
    );
    result.minProperties = least;
  }
}
