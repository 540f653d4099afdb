import { z } from "@hono/zod-openapi";
import { type Tool, TOOL_NAME, TOOL_NAME_RULE, type ToolChoice } from "../../engine/mod.ts";
import { pathText } from "../core/check.ts";
import { argumentsSchemaOrNull, type AskedForm } from "./constraints.ts";
import { boundedArray, documented, LIMITS, refuse, unsupported } from "../core/fields.ts";

export const functionName = z.string().regex(TOOL_NAME, { error: TOOL_NAME_RULE });

export const functionBody = z.object({
  name: functionName,
  description: z.string().nullish(),
  parameters: argumentsSchemaOrNull,
  strict: z.boolean().nullish().openapi({
    description: "Whether a schema that cannot be enforced exactly is refused; default false",
  }),
});

/** Schema of a tool. Other kinds of tools are refused as unsupported before any other field is checked. */
const tool = z.object({
  type: documented(z.string(), { type: "string", enum: ["function"] }),
  function: functionBody.optional(),
}).superRefine((tool, ctx) => {
  if (tool.type !== "function") {
    unsupported(ctx, "type", toolsOfType(tool.type));
  } else if (tool.function === undefined) {
    refuse(ctx, ["function"], "missing_required_parameter", 'A tool needs the field "function"');
  }
}).openapi({ required: ["type", "function"] });

/** Returns a phrase for tools of a type that a client sent. */
export function toolsOfType(type: string): string {
  return `tools of the type ${JSON.stringify(type.slice(0, 60))}`;
}

/** Returns warnings about hosted tools: prompts omit them, because only the API's provider can run them. */
export function hostedWarnings(types: readonly string[]): string[] {
  return [...new Set(types)].map((type) =>
    `The server cannot run ${toolsOfType(type)} and leaves them out of prompts`
  );
}

const namedFunction = z.object({ name: functionName });

export const TOOL_MODES = ["none", "auto", "required"] as const;

const toolChoice = z.union([
  z.enum(TOOL_MODES),
  z.object({ type: z.literal("function"), function: namedFunction }),
], {
  error: `must be ${
    TOOL_MODES.map((mode) => `"${mode}"`).join(", ")
  } or {"type":"function","function":{"name":…}}`,
});

const functionCall = z.union([z.enum(["none", "auto"]), namedFunction], {
  error: 'must be "none", "auto" or {"name":…}',
});

export const toolFields = {
  tools: boundedArray(tool, 0, LIMITS.tools).nullish(),
  tool_choice: toolChoice.nullish(),
  parallel_tool_calls: z.boolean().nullish().openapi({ description: "Default true" }),
  functions: boundedArray(functionBody, 0, LIMITS.tools).nullish().openapi({
    description: "Older than tools",
  }),
  function_call: functionCall.nullish(),
};

type Fields = { [name in keyof typeof toolFields]?: z.output<(typeof toolFields)[name]> };

/** The tools of a request, from either of the two formats. */
export interface AskedTools {
  readonly tools: readonly Tool[];
  readonly choice: ToolChoice;
  readonly parallel: boolean;
  /** Whether the request gave `functions`: calls are then returned as `function_call`. */
  readonly older: boolean;
}

/** Returns the request's tools, or undefined when it has none. */
export function toolsOf(body: Fields): AskedTools | undefined {
  const { tools, functions } = body;
  if (tools?.length) {
    const choice = body.tool_choice ?? "auto";
    return {
      tools: tools.flatMap((tool) => tool.function ? [toolOf(tool.function)] : []),
      choice: typeof choice === "string" ? choice : { name: choice.function.name },
      parallel: body.parallel_tool_calls ?? true,
      older: false,
    };
  }
  if (functions?.length) {
    return {
      tools: functions.map(toolOf),
      choice: body.function_call ?? "auto",
      parallel: false,
      older: true,
    };
  }
}

/** Returns the schemas that the arguments of tool calls must follow. */
export function toolForms(asked: AskedTools | undefined): AskedForm[] {
  return asked?.tools.flatMap((tool, i) =>
    toolForm(tool, asked.older ? `functions[${i}].parameters` : `tools[${i}].function.parameters`)
  ) ?? [];
}

/** Returns the form of a tool's arguments, if it has a schema. `param`: the schema's path in the request. */
export function toolForm({ name, parameters: schema, strict }: Tool, param: string): AskedForm[] {
  if (!schema) return [];
  const loose = strict ? {} : { looseFor: name };
  return [{ param, constraint: { kind: "json_schema", schema, closed: true, ...loose } }];
}

export function toolOf({ name, description, parameters, strict }: z.output<typeof functionBody>): Tool {
  return {
    name,
    description: description?.toWellFormed(),
    parameters: parameters ?? undefined,
    ...(strict ? { strict } : {}),
  };
}

/** Checks rules across fields: unique names, choices that name existing tools, and bounded total size. */
export function checkTools(body: Fields, ctx: z.RefinementCtx): void {
  if (body.tools?.length && body.functions?.length) {
    const message = '"tools" and "functions" are two formats of the same field; send one of them';
    return refuse(ctx, ["functions"], "conflicting_parameters", message);
  }
  // Tools without a name are refused by another check.
  const names = body.tools?.flatMap((tool) => tool.function?.name ?? []) ?? [];
  const olderNames = body.functions?.map(({ name }) => name) ?? [];
  checkNames(names, (i) => ["tools", i, "function", "name"], ctx);
  checkNames(olderNames, (i) => ["functions", i, "name"], ctx);
  for (const field of ["tools", "functions"] as const) checkSize(body[field] ?? [], field, ctx);
  const choice = body.tool_choice;
  if (choice === "required" && !body.tools?.length) {
    refuse(ctx, ["tool_choice"], "invalid_value", 'Invalid "tool_choice": "required" needs tools');
  }
  if (typeof choice === "object" && choice !== null) {
    checkChoice(choice.function.name, names, ["tool_choice", "function", "name"], "tools", ctx);
  }
  if (typeof body.function_call === "object" && body.function_call !== null) {
    checkChoice(body.function_call.name, olderNames, ["function_call", "name"], "functions", ctx);
  }
}

export function checkNames(
  names: string[],
  path: (index: number) => PropertyKey[],
  ctx: z.RefinementCtx,
): void {
  const first = new Map<string, number>();
  names.forEach((name, i) => {
    const earlier = first.get(name);
    if (earlier === undefined) first.set(name, i);
    else {
      const message = `must differ from the name of entry ${earlier}`;
      ctx.addIssue({ code: "custom", path: path(i), message, input: name });
    }
  });
}

const utf8 = new TextEncoder();

export function checkSize(given: unknown[], field: string, ctx: z.RefinementCtx): void {
  if (given.length === 0) return;
  const bytes = utf8.encode(JSON.stringify(given)).length;
  if (bytes <= LIMITS.toolBytes) return;
  const message =
    `Invalid "${field}": must have at most ${LIMITS.toolBytes} bytes of JSON together (got ${bytes})`;
  refuse(ctx, [field], "invalid_value", message);
}

export function checkChoice(
  name: string,
  names: string[],
  path: PropertyKey[],
  where: string,
  ctx: z.RefinementCtx,
): void {
  if (names.includes(name)) return;
  refuse(
    ctx,
    path,
    "invalid_value",
    `Invalid "${pathText(path)}": must be the name of one of "${where}" (got "${name}")`,
  );
}
