/** Tests whether the schemas of a `oneOf` plainly exclude each other, so that it means the same as `anyOf`. */

type Schema = Readonly<Record<string, unknown>>;

/** Facts that hold for every value a schema accepts. */
interface Facts {
  /** Its types, with "integer" as "number"; absent if any type is possible. */
  readonly types?: ReadonlySet<string>;
  /** The possible values as JSON, if there are few. */
  readonly values?: ReadonlySet<string>;
  /** For objects: the possible values of required properties, if there are few. */
  readonly constants: ReadonlyMap<string, ReadonlySet<string>>;
}

/** Maximum depth of references to follow. */
const MOST_REFERENCES = 8;

export function areExclusive(schemas: readonly unknown[], root: unknown): boolean {
  const all = schemas.map((schema) => factsOf(schema, root, MOST_REFERENCES));
  return all.every((one, i) => all.slice(i + 1).every((other) => exclude(one, other)));
}

function exclude(one: Facts, other: Facts): boolean {
  if (apart(one.types, other.types) || apart(one.values, other.values)) return true;
  const objects = [one, other].every(({ types }) => types?.size === 1 && types.has("object"));
  return objects && [...one.constants].some(([name, values]) => apart(values, other.constants.get(name)));
}

function apart(one: ReadonlySet<string> | undefined, other: ReadonlySet<string> | undefined): boolean {
  return one !== undefined && other !== undefined && one.isDisjointFrom(other);
}

function factsOf(schema: unknown, root: unknown, references: number): Facts {
  if (!isSchema(schema)) return { constants: new Map() };
  const target = typeof schema.$ref === "string" && references > 0 ? at(root, schema.$ref) : undefined;
  const from = target === undefined ? undefined : factsOf(target, root, references - 1);
  const values = valuesOf(schema) ?? from?.values;
  const types = typesOf(schema) ?? from?.types ??
    (values && new Set([...values].map((value) => typeOf(JSON.parse(value)))));
  const constants = new Map(from?.constants);
  const { required, properties } = schema;
  for (const name of Array.isArray(required) ? required : []) {
    const property = isSchema(properties) && Object.hasOwn(properties, name) ? properties[name] : undefined;
    const known = factsOf(property, root, references - 1).values;
    if (known) constants.set(name, known);
  }
  return { ...(types && { types }), ...(values && { values }), constants };
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
function at(root: unknown, reference: string): unknown {
  const fragment = reference.slice(reference.indexOf("#") + 1);
  // Other spellings of a reference are refused where it is read, or yield no facts here.
  if (fragment.includes("%")) return undefined;
  let place = root;
  for (const part of fragment.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof place !== "object" || place === null || !Object.hasOwn(place, name)) return undefined;
    place = (place as Schema)[name];
  }
  return place;
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
