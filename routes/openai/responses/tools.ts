import { z } from "@hono/zod-openapi";
import type { Tool, ToolChoice } from "../../../engine/mod.ts";
import type { AskedForm } from "../../generation/constraints.ts";
import { boundedArray, documented, LIMITS, refuse, unsupported } from "../../core/fields.ts";
import {
  checkChoice,
  checkNames,
  checkSize,
  functionBody,
  functionName,
  TOOL_MODES,
  toolForm,
  toolOf,
} from "../../generation/tools.ts";

/* Function tools in the flat format of /v1/responses. */

/** Other kinds of tools are refused as unsupported before any other field is checked. */
const tool = functionBody.partial({ name: true }).extend({
  type: documented(z.string(), { type: "string", enum: ["function"] }),
}).superRefine((tool, ctx) => {
  if (tool.type !== "function") {
    unsupported(ctx, "type", `tools of the type ${JSON.stringify(tool.type.slice(0, 60))}`);
  } else if (tool.name === undefined) {
    refuse(ctx, ["name"], "missing_required_parameter", 'A tool needs the field "name"');
  }
}).openapi("FunctionTool", { required: ["type", "name"] });

const named = z.object({ type: z.literal("function"), name: functionName });

const allowed = z.object({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: boundedArray(named, 1, LIMITS.tools),
});

const CHOICES = `must be ${TOOL_MODES.map((mode) => `"${mode}"`).join(", ")}, ` +
  '{"type":"function","name":…} or {"type":"allowed_tools","mode":…,"tools":…}';

const toolChoice = z.union([
  z.enum(TOOL_MODES),
  z.discriminatedUnion("type", [named, allowed], { error: 'must be "function" or "allowed_tools"' }),
], { error: CHOICES });

export const responseToolFields = {
  tools: boundedArray(tool, 0, LIMITS.tools).nullish(),
  tool_choice: toolChoice.nullish(),
  parallel_tool_calls: z.boolean().nullish().openapi({ description: "Default true" }),
};

type Fields = { [name in keyof typeof responseToolFields]?: z.output<(typeof responseToolFields)[name]> };

interface ResponseTools {
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  readonly parallelToolCalls: boolean;
}

/** Returns the tools for a chat form, or undefined when the request has none. */
export function responseTools(body: Fields): ResponseTools | undefined {
  if (!body.tools?.length) return undefined;
  const choice = body.tool_choice ?? "auto";
  const only = typeof choice === "object" && choice.type === "allowed_tools" ? choice : undefined;
  const names = only?.tools.map(({ name }) => name);
  return {
    // Each tool has a name: others were refused.
    tools: body.tools.map((tool) => toolOf({ ...tool, name: tool.name! }))
      .filter(({ name }) => names?.includes(name) ?? true),
    toolChoice: typeof choice === "string"
      ? choice
      : choice.type === "function"
      ? { name: choice.name }
      : choice.mode,
    parallelToolCalls: body.parallel_tool_calls ?? true,
  };
}

/** Returns the schemas that the arguments of tool calls must follow. */
export function responseToolForms({ tools }: Fields): AskedForm[] {
  return tools?.flatMap((tool, i) =>
    toolForm(toolOf({ ...tool, name: tool.name! }), `tools[${i}].parameters`)
  ) ?? [];
}

/** Checks rules across fields: unique names, choices that name existing tools, and bounded total size. */
export function checkResponseTools({ tools, tool_choice: choice }: Fields, ctx: z.RefinementCtx): void {
  const names = tools?.flatMap(({ name }) => name ?? []) ?? [];
  checkNames(names, (i) => ["tools", i, "name"], ctx);
  checkSize(tools ?? [], "tools", ctx);
  if (choice === "required" && names.length === 0) {
    refuse(ctx, ["tool_choice"], "invalid_value", 'Invalid "tool_choice": "required" needs tools');
  }
  if (typeof choice !== "object" || choice === null) return;
  const chosen: [name: string, path: PropertyKey[]][] = choice.type === "function"
    ? [[choice.name, ["tool_choice", "name"]]]
    : choice.tools.map(({ name }, i) => [name, ["tool_choice", "tools", i, "name"]]);
  for (const [name, path] of chosen) checkChoice(name, names, path, "tools", ctx);
}
