/** Reduces schemas of tool arguments that the library refuses as a whole. */

import { isSchema } from "./findings.ts";

/** JSON schema keywords whose grammar is cheap and always compiles. */
const KEPT = ["type", "enum", "const", "required", "$ref", "$schema"];
const MAPS = ["properties", "$defs", "definitions"];

/** Returns a looser schema: the structure of values without bounds, patterns and conditions. */
export function coarse(schema: unknown): unknown {
  if (!isSchema(schema)) return schema;
  const result: Record<string, unknown> = {};
  // `allOf` and similar keywords may describe further properties. Without them, the object must accept any property.
  if ("allOf" in schema || "patternProperties" in schema) result.additionalProperties = true;
  for (const [keyword, value] of Object.entries(schema)) {
    if (KEPT.includes(keyword)) result[keyword] = value;
    else if (MAPS.includes(keyword) && isSchema(value)) {
      result[keyword] = Object.fromEntries(
        Object.entries(value).map(([name, inner]) => [name, coarse(inner)]),
      );
    } else if (keyword === "items" || keyword === "additionalProperties") result[keyword] ??= coarse(value);
    else if ((keyword === "anyOf" || keyword === "oneOf") && Array.isArray(value)) {
      result.anyOf = value.map(coarse);
    }
  }
  return result;
}

/** Returns the schema without unused definitions, so that these are not loosened. */
export function withoutUnused(schema: unknown): unknown {
  if (!isSchema(schema)) return schema;
  const { $defs, definitions, ...rest } = schema;
  const used = referencesIn(rest);
  const kept: Record<string, Record<string, unknown>> = {};
  for (const reference of used) {
    // References of other forms may lead anywhere.
    if (!/^#\/(\$defs|definitions)\/[^/%~]+$/.test(reference)) return schema;
    const [, keyword, name] = reference.split("/");
    const map = keyword === "$defs" ? $defs : definitions;
    if (!isSchema(map) || !Object.hasOwn(map, name)) continue;
    (kept[keyword] ??= {})[name] = map[name];
    for (const other of referencesIn(map[name])) used.add(other);
  }
  return { ...rest, ...kept };
}

function referencesIn(value: unknown, found = new Set<string>()): Set<string> {
  if (Array.isArray(value)) value.forEach((inner) => referencesIn(inner, found));
  else if (isSchema(value)) {
    for (const [keyword, inner] of Object.entries(value)) {
      if (keyword === "$ref" && typeof inner === "string") found.add(inner);
      else referencesIn(inner, found);
    }
  }
  return found;
}
