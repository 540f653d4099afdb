import { type Constraint, ConstraintError } from "../grammar/types.ts";
import type { Tool } from "./types.ts";

type Schema = Readonly<Record<string, unknown>>;

/** A tool with checked parameters: an object schema. */
export interface CheckedTool {
  readonly name: string;
  readonly description: string | undefined;
  readonly parameters: Schema;
  /** Whether schema keywords that cannot be enforced are refused. */
  readonly strict: boolean;
}

const NO_PARAMETERS: Schema = { type: "object", properties: {}, additionalProperties: false };
/** Schema keywords that describe no parameter, unless their value is not null, false or empty. */
const NAMELESS = ["$schema", "$id", "type", "title", "description", "required"];
const EMPTY = ["properties", "additionalProperties"];

/** Returns the tool with checked parameters. Throws ConstraintError for a schema that does not describe an object. */
export function checkTool({ name, description, parameters, strict = false }: Tool): CheckedTool {
  const schema = parameters ? objectSchema(name, parameters) : NO_PARAMETERS;
  return { name, description, parameters: hasParameters(schema) ? schema : NO_PARAMETERS, strict };
}

/**
 * Returns whether a schema has parameters, or allows any. Many servers write `{"type": "object"}` for no parameters.
 */
function hasParameters(schema: Schema): boolean {
  return Object.entries(schema).some(([keyword, value]) => {
    if (value === null || value === undefined || NAMELESS.includes(keyword)) return false;
    return !EMPTY.includes(keyword) || !(value === false || (keyword === "properties" && isEmpty(value)));
  });
}

function isEmpty(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

/** Returns the constraint for a tool's arguments, or for a part of the arguments. */
export function argumentsForm(
  { name, parameters, strict }: Pick<CheckedTool, "name" | "parameters" | "strict">,
  schema: unknown = parameters,
): Constraint {
  return { kind: "json_schema", schema, closed: true, ...(strict ? {} : { looseFor: name }) };
}

function objectSchema(name: string, schema: Schema): Schema {
  const { type } = schema;
  const types = Array.isArray(type) ? type : [type ?? "object"];
  if (!types.includes("object")) {
    const shown = JSON.stringify(type).slice(0, 80);
    throw new ConstraintError(
      `Invalid parameters of the tool ${JSON.stringify(name)}: "type" must be "object" (got ${shown})`,
    );
  }
  return { ...schema, type: "object" };
}

/** Returns the tool in OpenAI's form, which templates expect. */
export function toolSpec({ name, description, parameters }: CheckedTool): Record<string, unknown> {
  return { type: "function", function: { name, ...(description ? { description } : {}), parameters } };
}
