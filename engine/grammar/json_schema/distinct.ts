/** Expresses `uniqueItems` if the items have few possible values. */

import { type Findings, isSchema, type Path, refused, type Schema } from "./findings.ts";
import { isOf } from "./negation.ts";

/** Maximum number of lists that are written out for `uniqueItems`. */
const MAX_LISTS = 400;
const VALUE_KEYWORDS = ["type", "enum", "const", "title", "description", "default", "$comment", "examples"];

/** Rewrites a list with `uniqueItems` in `result`. `root` resolves references. */
export function readDistinct(
  schema: Schema,
  result: Record<string, unknown>,
  path: Path,
  findings: Findings,
  at: (reference: string) => unknown,
): void {
  const { uniqueItems, items, prefixItems, minItems = 0, maxItems = Infinity } = schema;
  if (uniqueItems !== true || (maxItems as number) <= 1) return;
  const values = prefixItems === undefined && schema.type === "array" ? valuesOf(items, at) : undefined;
  const lists = values && listsOf(values, minItems as number, maxItems as number);
  if (!lists) {
    return findings.refuse(
      [...path, "uniqueItems"],
      "is supported only for lists of few values from an enum",
    );
  }
  if (lists.length === 0) {
    const what = `needs ${minItems} different items, but no answer can have more than ${values.length}`;
    throw refused(path, what, true);
  }
  for (const keyword of ["items", "minItems", "maxItems", "additionalItems"]) delete result[keyword];
  result.enum = lists;
}

/** Returns the values that a schema of items lists; undefined if it lists none. */
function valuesOf(items: unknown, at: (reference: string) => unknown): unknown[] | undefined {
  if (!isSchema(items)) return undefined;
  if (typeof items.$ref === "string" && Object.keys(items).length === 1) {
    return valuesOf(at(items.$ref), () => {});
  }
  if (!Object.keys(items).every((key) => VALUE_KEYWORDS.includes(key))) return undefined;
  const values = "const" in items
    ? [items.const]
    : items.enum ?? (items.type === "boolean" ? [true, false] : 0);
  if (!Array.isArray(values)) return undefined;
  const types = items.type === undefined ? undefined : [items.type].flat() as string[];
  if (values.length > MAX_LISTS) return undefined;
  const distinct = new Map(values.map((value) => [JSON.stringify(value), value]));
  return [...distinct.values()].filter((value) => types === undefined || isOf(value, types));
}

/** Returns all lists of different values in all orders; undefined if there are too many. */
function listsOf(values: readonly unknown[], least: number, most: number): unknown[][] | undefined {
  const lists: unknown[][] = [];
  let layer: unknown[][] = [[]];
  for (let length = 0; length <= Math.min(most, values.length); length++) {
    if (length >= least) lists.push(...layer);
    if (lists.length + layer.length > MAX_LISTS) return undefined;
    layer = layer.flatMap((list) =>
      values.filter((value) => !list.includes(value)).map((value) => [...list, value])
    );
  }
  return lists;
}
