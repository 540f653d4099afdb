import { z } from "@hono/zod-openapi";
import type { Tool } from "../../engine/mod.ts";
import { argumentsSchema, type AskedForm } from "../generation/constraints.ts";
import { boundedArray, LIMITS, refuse } from "../core/fields.ts";
import {
  type AskedTools,
  checkChoice,
  checkNames,
  checkSize,
  functionName,
  toolForm,
  toolsOfType,
} from "../generation/tools.ts";

const NEEDED = ["name", "input_schema"] as const;

/** Schema of a tool: the client's, or a hosted one that Anthropic runs or trained its models for. */
const tool = z.object({
  type: z.string().nullish().openapi({ description: "Only tools of type custom are used" }),
  name: functionName.optional(),
  description: z.string().nullish(),
  input_schema: argumentsSchema.optional(),
  strict: z.boolean().nullish().openapi({
    description: "Whether a schema that cannot be enforced exactly is refused; default false",
  }),
}).superRefine((tool, ctx) => {
  if (isHosted(tool)) return;
  for (const field of NEEDED) {
    if (tool[field] !== undefined) continue;
    refuse(ctx, [field], "missing_required_parameter", `A tool needs the field "${field}"`);
  }
}).openapi("MessagesTool", {
  anyOf: [
    { required: [...NEEDED] },
    { required: ["type"], properties: { type: { type: "string", not: { enum: ["", "custom"] } } } },
  ],
} as never);

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

/** Returns whether the server cannot run the tool. A hosted tool has no schema, so the prompt omits it. */
function isHosted({ type }: { type?: string | null }): boolean {
  return Boolean(type) && type !== "custom";
}

/** Returns the client's own tools, with their paths in the request. */
function ownTools(tools: Fields["tools"]) {
  return (tools ?? []).map((tool, place) => ({ tool, place })).filter(({ tool }) => !isHosted(tool));
}

/** Returns the types of the tools that the prompt omits. */
export function hostedTypes({ tools }: Fields): string[] {
  return (tools ?? []).filter(isHosted).map(({ type }) => type!);
}

/** Returns the request's tools, or undefined when it has none. */
export function toolsOf({ tools, tool_choice: choice }: Fields): Omit<AskedTools, "older"> | undefined {
  const own = ownTools(tools);
  if (own.length === 0) return undefined;
  return {
    tools: own.map(({ tool }) => toolOf(tool)),
    choice: choiceOf(choice),
    parallel: !(choice && choice.type !== "none" && choice.disable_parallel_tool_use),
  };
}

function toolOf({ name, description, input_schema, strict }: z.output<typeof tool>): Tool {
  return {
    name: name!,
    description: description?.toWellFormed(),
    parameters: input_schema,
    ...(strict ? { strict } : {}),
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
export function toolForms({ tools }: Fields): AskedForm[] {
  return ownTools(tools).flatMap(({ tool, place }) => toolForm(toolOf(tool), `tools[${place}].input_schema`));
}

export function checkTools({ tools, tool_choice: choice }: Fields, ctx: z.RefinementCtx): void {
  // Tools without a name are refused by another check.
  const own = ownTools(tools).filter(({ tool }) => tool.name !== undefined);
  const names = own.map(({ tool }) => tool.name!);
  checkNames(names, (i) => ["tools", own[i].place, "name"], ctx);
  checkSize(tools ?? [], "tools", ctx);
  if (choice?.type === "any" && names.length === 0) {
    const [type] = hostedTypes({ tools });
    const hosted = type === undefined ? "" : `; the server cannot run ${toolsOfType(type)}`;
    refuse(ctx, ["tool_choice"], "invalid_value", `Invalid "tool_choice": "any" needs tools${hosted}`);
  }
  if (choice?.type !== "tool") return;
  const hosted = tools?.find((tool) => isHosted(tool) && tool.name === choice.name);
  if (!hosted || names.includes(choice.name)) {
    return checkChoice(choice.name, names, ["tool_choice", "name"], "tools", ctx);
  }
  const message = `Invalid "tool_choice.name": the server cannot run ${toolsOfType(hosted.type!)}, ` +
    `so no answer can call "${choice.name}"`;
  refuse(ctx, ["tool_choice", "name"], "invalid_value", message);
}
