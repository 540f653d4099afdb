import { z } from "@hono/zod-openapi";
import { argumentsSchema, type AskedForm } from "../generation/constraints.ts";
import { boundedArray, documented, LIMITS, refuse, unsupported } from "../core/fields.ts";
import {
  type AskedTools,
  checkChoice,
  checkNames,
  checkSize,
  functionName,
  toolForm,
} from "../generation/tools.ts";

/** A tool of the client. Tools that Anthropic runs, or trained its models for, have no schema here. */
const tool = z.object({
  type: documented(z.string().nullish(), { type: ["string", "null"], enum: ["custom", null] }),
  name: functionName.optional(),
  description: z.string().nullish(),
  input_schema: argumentsSchema.optional(),
  strict: z.boolean().nullish().openapi({
    description: "Whether a schema that cannot be enforced exactly is refused; default false",
  }),
}).superRefine((tool, ctx) => {
  if (tool.type && tool.type !== "custom") {
    return unsupported(ctx, "type", `tools of the type ${JSON.stringify(tool.type.slice(0, 60))}`);
  }
  for (const field of ["name", "input_schema"] as const) {
    if (tool[field] !== undefined) continue;
    refuse(ctx, [field], "missing_required_parameter", `A tool needs the field "${field}"`);
  }
}).openapi("MessagesTool", { required: ["name", "input_schema"] });

const parallel = {
  disable_parallel_tool_use: z.boolean().nullish().openapi({ description: "At most one call" }),
};

const toolChoice = z.discriminatedUnion("type", [
  z.object({ type: z.literal("auto"), ...parallel }),
  z.object({ type: z.literal("any"), ...parallel }),
  z.object({ type: z.literal("tool"), name: functionName, ...parallel }),
  z.object({ type: z.literal("none") }),
], { error: 'must be "auto", "any", "tool" or "none"' });

export const toolFields = {
  tools: boundedArray(tool, 0, LIMITS.tools).nullish(),
  tool_choice: toolChoice.nullish(),
};

type Fields = { [name in keyof typeof toolFields]?: z.output<(typeof toolFields)[name]> };

/** Returns the request's tools, or undefined when it has none. */
export function toolsOf({ tools, tool_choice: choice }: Fields): Omit<AskedTools, "older"> | undefined {
  if (!tools?.length) return undefined;
  return {
    tools: tools.map(({ name, description, input_schema, strict }) => ({
      name: name!,
      description: description?.toWellFormed(),
      parameters: input_schema,
      ...(strict ? { strict } : {}),
    })),
    choice: choiceOf(choice),
    parallel: !(choice && choice.type !== "none" && choice.disable_parallel_tool_use),
  };
}

function choiceOf(choice: Fields["tool_choice"]): AskedTools["choice"] {
  switch (choice?.type) {
    case "any":
      return "required";
    case "tool":
      return { name: choice.name };
    default:
      return choice?.type ?? "auto";
  }
}

/** Returns the schemas that the arguments of tool calls must follow. */
export function toolForms(body: Fields): AskedForm[] {
  return toolsOf(body)?.tools.flatMap((tool, i) => toolForm(tool, `tools[${i}].input_schema`)) ?? [];
}

export function checkTools({ tools, tool_choice: choice }: Fields, ctx: z.RefinementCtx): void {
  // Tools without a name are refused elsewhere.
  const names = tools?.flatMap(({ name }) => name ?? []) ?? [];
  checkNames(names, (i) => ["tools", i, "name"], ctx);
  checkSize(tools ?? [], "tools", ctx);
  if (choice?.type === "any" && names.length === 0) {
    refuse(ctx, ["tool_choice"], "invalid_value", 'Invalid "tool_choice": "any" needs tools');
  }
  if (choice?.type === "tool") checkChoice(choice.name, names, ["tool_choice", "name"], "tools", ctx);
}
