/** Finds schemas that are the only ones to describe their values, so that closing their objects is safe. */

import { isSchema, type Schema } from "./findings.ts";

/** Keywords that describe an object's properties, directly or through another schema. */
const PROPERTIES = [
  "properties",
  "patternProperties",
  "additionalProperties",
  "$ref",
  "allOf",
  "anyOf",
  "oneOf",
];
const MAPS = ["properties", "patternProperties", "$defs", "definitions"];
const IN_PLACE = ["allOf", "anyOf", "oneOf"];

/**
 * Returns whether a schema under `keyword` is the only schema that describes the properties of its values. `alone`:
 * whether its parent schema is the only one.
 */
export function isAlone(schema: Schema, keyword: string, alone: boolean): boolean {
  if (!IN_PLACE.includes(keyword)) return true;
  const isOnly = PROPERTIES.every((other) => other === keyword || !(other in schema));
  return alone && isOnly &&
    (keyword !== "allOf" || (Array.isArray(schema.allOf) && schema.allOf.length === 1));
}

/** Returns whether a reference leads to a schema that describes only some of a value's properties. */
export function sharesReferences(schema: unknown, alone = true): boolean {
  if (!isSchema(schema)) return false;
  const isOnly = PROPERTIES.every((keyword) => keyword === "$ref" || !(keyword in schema));
  if ("$ref" in schema && !(alone && isOnly)) return true;
  return Object.entries(schema).some(([keyword, value]) => {
    const inner = MAPS.includes(keyword) && isSchema(value) ? Object.values(value) : [value].flat();
    return inner.some((part) => sharesReferences(part, isAlone(schema, keyword, alone)));
  });
}

/** Returns whether a value may have to match two schemas at once. */
export function composes(schema: unknown): boolean {
  if (Array.isArray(schema)) return schema.some(composes);
  if (!isSchema(schema)) return false;
  const kinds = ["$ref", "anyOf", "oneOf", "type"].filter((keyword) => keyword in schema);
  return "allOf" in schema || "patternProperties" in schema || kinds.length > 1 ||
    Object.values(schema).some(composes);
}
