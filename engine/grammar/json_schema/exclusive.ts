/** Tests whether the schemas of a `oneOf` exclude each other, so that it equals `anyOf`. */

import type { Budget } from "../pattern/automaton.ts";
import { isSchema, type Schema } from "./findings.ts";
import { isSelfContained } from "./objects.ts";

/** Facts that hold for every value a schema accepts. */
interface Facts {
  /** The possible types of a value, with "integer" as "number"; undefined if any type is possible. */
  readonly types?: ReadonlySet<string>;
  /** The possible values as JSON, if there are few. */
  readonly values?: ReadonlySet<string>;
  /** For objects: the possible values of required properties, if there are few. */
  readonly constants: ReadonlyMap<string, ReadonlySet<string>>;
  /** For objects: the names of required properties. */
  readonly required: ReadonlySet<string>;
  /** For objects: all names that their properties may have; undefined if other names are allowed. */
  readonly names?: ReadonlySet<string>;
}

/** Maximum depth of references to follow. */
const MOST_REFERENCES = 8;

export interface ExclusiveOptions {
  /** The whole schema, in which references are resolved. */
  readonly root: unknown;
  /** Whether an object must not have properties that its schema does not list. */
  readonly closed: boolean;
  /** Remaining comparisons for all schemas together. At 0, schemas count as overlapping. */
  readonly budget: Budget;
}

export function areExclusive(schemas: readonly unknown[], options: ExclusiveOptions): boolean {
  const { budget } = options;
  budget.left -= schemas.length ** 2 / 2;
  if (budget.left < 0) return false;
  const all = schemas.map((schema) => factsOf(schema, MOST_REFERENCES, options));
  return budget.left >= 0 && all.every((one, i) => all.slice(i + 1).every((other) => exclude(one, other)));
}

function exclude(one: Facts, other: Facts): boolean {
  if (apart(one.types, other.types) || apart(one.values, other.values)) return true;
  const objects = [one, other].every(({ types }) => types?.size === 1 && types.has("object"));
  return objects && ([...one.constants].some(([name, values]) => apart(values, other.constants.get(name))) ||
    lacks(one, other) || lacks(other, one));
}

function apart(one: ReadonlySet<string> | undefined, other: ReadonlySet<string> | undefined): boolean {
  return one !== undefined && other !== undefined && one.isDisjointFrom(other);
}

/** Returns whether objects of one kind cannot have a name that the other kind requires. */
function lacks({ names }: Facts, { required }: Facts): boolean {
  return names !== undefined && !required.isSubsetOf(names);
}

function factsOf(schema: unknown, references: number, options: ExclusiveOptions): Facts {
  const { root, closed, budget } = options;
  if (!isSchema(schema) || --budget.left < 0) return { constants: new Map(), required: new Set() };
  const target = typeof schema.$ref === "string" && references > 0 ? at(root, schema.$ref) : undefined;
  const from = target === undefined ? undefined : factsOf(target, references - 1, options);
  const values = valuesOf(schema) ?? from?.values;
  const types = typesOf(schema) ?? from?.types ??
    (values && new Set([...values].map((value) => typeOf(JSON.parse(value)))));
  const constants = new Map(from?.constants);
  const { properties } = schema;
  const own = Array.isArray(schema.required) ? schema.required : [];
  const required = new Set([...own, ...from?.required ?? []]);
  const isClosed = schema.additionalProperties === false ||
    (closed && isSchema(properties) && schema.additionalProperties === undefined && isSelfContained(schema));
  const names = isClosed && schema.patternProperties === undefined
    ? new Set(Object.keys(isSchema(properties) ? properties : {})).union(closed ? new Set(own) : new Set())
    : from?.names;
  for (const name of own) {
    const property = isSchema(properties) && Object.hasOwn(properties, name) ? properties[name] : undefined;
    const known = factsOf(property, references - 1, options).values;
    if (known) constants.set(name, known);
  }
  return { ...(types && { types }), ...(values && { values }), constants, required, ...(names && { names }) };
}

function typesOf({ type }: Schema): Set<string> | undefined {
  const types = typeof type === "string" ? [type] : Array.isArray(type) ? type : undefined;
  return types && new Set(types.map((name) => name === "integer" ? "number" : String(name)));
}

function valuesOf(schema: Schema): Set<string> | undefined {
  if ("const" in schema) return new Set([JSON.stringify(schema.const)]);
  return Array.isArray(schema.enum) ? new Set(schema.enum.map((value) => JSON.stringify(value))) : undefined;
}

function typeOf(value: unknown): string {
  return value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
}

/** Returns the value that a JSON pointer refers to; undefined if unknown. */
export function at(root: unknown, reference: string): unknown {
  const fragment = reference.slice(reference.indexOf("#") + 1);
  // References in other spellings are refused where they are read; here they yield no facts.
  if (fragment.includes("%")) return undefined;
  let place = root;
  for (const part of fragment.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof place !== "object" || place === null || !Object.hasOwn(place, name)) return undefined;
    place = (place as Schema)[name];
  }
  return place;
}
