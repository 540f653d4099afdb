import { type Constraint, ConstraintError } from "../grammar/types.ts";
import type { LarkGrammar } from "./lark.ts";
import { argumentsForm, type CheckedTool } from "./tools.ts";
import { isObject } from "./types.ts";

/** Splits a tool's schema into single parameters, for formats that do not write arguments as one JSON object. */

type Schema = Readonly<Record<string, unknown>>;

export interface Parameter {
  readonly name: string;
  readonly required: boolean;
  readonly value: Value;
}

/** Kinds of parameter values that formats spell in their own way. Other values are written as JSON. */
export type Value =
  | { readonly kind: "text" }
  /** A value that is one of the given texts. */
  | { readonly kind: "choice"; readonly choices: readonly string[] }
  | { readonly kind: "boolean" }
  | { readonly kind: "list"; readonly items: Value; readonly form: Constraint }
  | { readonly kind: "object"; readonly properties: readonly Parameter[]; readonly form: Constraint }
  | { readonly kind: "json"; readonly form: Constraint };

/** JSON schema keywords that do not restrict values. */
const NOTES = ["title", "description", "default", "examples", "deprecated", "readOnly", "$comment"];
/** Keywords of an object schema that a list of parameters fully represents. */
const OBJECT = ["type", "properties", "required", "additionalProperties"];
const ROOT = [...OBJECT, "$schema", "$id", "$defs", "definitions", "strict", "unevaluatedProperties"];

/** Returns the parameters' values of the tool with this name; empty for an unknown tool. Throws as parametersOf. */
export function parameterValues(tools: readonly CheckedTool[], name: string): ReadonlyMap<string, Value> {
  const tool = tools.find((tool) => tool.name === name);
  return valuesByName(tool ? parametersOf(tool) : []);
}

/** Results of `valuesByName` and `parametersOf`: readers need them for each call, and for each item of a list. */
const maps = new WeakMap<readonly Parameter[], ReadonlyMap<string, Value>>();
const parametersOfTools = new WeakMap<CheckedTool, readonly Parameter[]>();

/** Returns the parameters' values by name. */
export function valuesByName(parameters: readonly Parameter[]): ReadonlyMap<string, Value> {
  const map = maps.get(parameters) ?? new Map(parameters.map(({ name, value }) => [name, value]));
  maps.set(parameters, map);
  return map;
}

/**
 * Returns a tool's parameters. Throws ConstraintError for a strict tool whose schema a list of parameters cannot
 * represent.
 */
export function parametersOf(tool: CheckedTool): readonly Parameter[] {
  const parameters = parametersOfTools.get(tool) ?? splitParameters(tool);
  parametersOfTools.set(tool, parameters);
  return parameters;
}

function splitParameters(tool: CheckedTool): Parameter[] {
  const schema = followed(tool.parameters);
  const [more] = tool.strict ? unlistedOf(schema) : [];
  if (more !== undefined) {
    throw new ConstraintError(
      `Cannot use the tool ${
        JSON.stringify(tool.name)
      }: this model's calls name their arguments one by one, so ` +
        `its parameters may not have ${JSON.stringify(more)} at the top`,
    );
  }
  return propertiesOf(schema, (part) => argumentsForm(tool, within(tool.parameters, part)));
}

/** Returns the schema keywords that a list of parameters does not represent. */
function unlistedOf(schema: Schema): string[] {
  return Object.keys(schema).filter((key) => !ROOT.includes(key) && !NOTES.includes(key));
}

/**
 * Returns the parameters that a grammar writes, and records in the grammar what it leaves out. Throws ConstraintError
 * if the format cannot write a required parameter's name.
 */
export function writtenParameters(
  lark: LarkGrammar,
  tool: CheckedTool,
  canName: (name: string) => boolean = () => true,
): Parameter[] {
  const parameters = parametersOf(tool);
  const left = parameters.filter(({ name }) => !canName(name));
  const cannot = left.find(({ required }) => required || tool.strict);
  if (cannot) throw cannotName(tool, cannot.name);
  const keywords = [
    ...unlistedOf(followed(tool.parameters)),
    ...left.map(({ name }) => `properties/${name}`),
  ];
  if (keywords.length > 0) {
    lark.loosened.push({
      tool: tool.name,
      keywords: keywords.map((key) => `/${key}`),
    });
  }
  return parameters.filter((parameter) => !left.includes(parameter));
}

/** Returns the error for a parameter name that contains the text which ends names. */
function cannotName(tool: CheckedTool, parameter: string): ConstraintError {
  return new ConstraintError(
    `Cannot use the tool ${
      JSON.stringify(tool.name)
    }: this model's calls cannot write the parameter's name ` +
      JSON.stringify(parameter.slice(0, 80)),
  );
}

/** Returns the schema behind references at the root: generators often put the whole schema into `definitions`. */
function followed(root: Schema): Schema {
  let schema = root;
  for (
    let steps = 0;
    steps < 16 && typeof schema.$ref === "string" && schema.$ref.startsWith("#/");
    steps++
  ) {
    const target = schema.$ref.slice(2).split("/").reduce<unknown>((value, key) => {
      const name = decodeURIComponent(key).replaceAll("~1", "/").replaceAll("~0", "~");
      return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
    }, root);
    if (!isObject(target)) break;
    const { $ref: _, ...rest } = schema;
    schema = { ...rest, ...target };
  }
  return schema;
}

/**
 * Returns the properties of an object schema. `whole` returns the form of a part of the schema.
 */
function propertiesOf(schema: Schema, whole: (schema: unknown) => Constraint): Parameter[] {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required.map(String) : [];
  const others = required.filter((name) => !Object.hasOwn(properties, name));
  const other = schema.additionalProperties ?? true;
  return [
    ...Object.entries(properties).map(([name, schema]) => ({
      name,
      required: required.includes(name),
      value: valueOf(schema, whole),
    })),
    ...others.map((name) => ({ name, required: true, value: valueOf(other, whole) })),
  ];
}

function valueOf(schema: unknown, whole: (schema: unknown) => Constraint): Value {
  if (!isObject(schema)) return { kind: "json", form: whole(schema) };
  const has = (...keys: string[]) =>
    Object.keys(schema).every((key) => keys.includes(key) || NOTES.includes(key));
  const { type } = schema;
  if (type === "string" && has("type")) return { kind: "text" };
  if (type === "boolean" && has("type")) return { kind: "boolean" };
  const choices = Array.isArray(schema.enum) ? schema.enum : [schema.const];
  if (has("type", "enum") || has("type", "const")) {
    const isText = (type ?? "string") === "string" && choices.every((choice) => typeof choice === "string");
    if (isText && choices.every((choice) => choice !== "")) return { kind: "choice", choices };
  }
  if (type === "array" && has("type", "items")) {
    return { kind: "list", items: valueOf(schema.items ?? true, whole), form: whole(schema) };
  }
  if (type === "object" && has(...OBJECT) && isObject(schema.properties)) {
    return { kind: "object", properties: propertiesOf(schema, whole), form: whole(schema) };
  }
  return { kind: "json", form: whole(schema) };
}

/** Returns a part of a schema as an independent schema, with the referenced definitions in `$defs`. */
function within(root: Schema, part: unknown): unknown {
  if (!isObject(part) || !refers(part)) return part;
  return { ...moved(part) as Schema, $defs: { root: moved(root) } };
}

function refers(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(refers);
  return isObject(value) && Object.entries(value).some(([key, inner]) => key === "$ref" || refers(inner));
}

/** Returns the schema value with references redirected into `$defs.root`. */
function moved(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(moved);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => {
      const isReference = key === "$ref" && typeof inner === "string" && inner.startsWith("#");
      return [key, isReference ? `#/$defs/root${inner.slice(1)}` : moved(inner)];
    }),
  );
}

/** Returns a grammar expression for the parameters in order; optional ones may be missing. */
export function parameterList(
  parameters: readonly Parameter[],
  separator: string,
  write: (parameter: Parameter) => string,
  rule: (expression: string) => string,
): string {
  let first = "";
  let next = "";
  for (const parameter of parameters.toReversed()) {
    const written = rule(write(parameter));
    const here = `${written} ${next}`.trim();
    first = parameter.required ? here : first === "" ? `(${here})?` : `(${here} | ${rule(first)})`;
    next = `${parameter.required ? `${separator} ${written}` : `(${separator} ${written})?`} ${next}`.trim();
  }
  return first;
}
