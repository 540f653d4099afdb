import { ConstraintError } from "../grammar/types.ts";
import type { Tool } from "./types.ts";

type Schema = Readonly<Record<string, unknown>>;

/** A tool whose parameters are an object schema. */
export interface CheckedTool {
  readonly name: string;
  readonly description: string | undefined;
  readonly parameters: Schema;
}

const NO_PARAMETERS: Schema = { type: "object", properties: {}, additionalProperties: false };

/**
 * Returns the tool with its parameters checked. Throws ConstraintError for a schema that is not of an object.
 */
export function checkTool({ name, description, parameters }: Tool): CheckedTool {
  return { name, description, parameters: parameters ? objectSchema(name, parameters) : NO_PARAMETERS };
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
