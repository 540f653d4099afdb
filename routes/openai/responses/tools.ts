import { z } from "@hono/zod-openapi";
import type { Tool, ToolChoice } from "../../../engine/mod.ts";
import type { AskedForm } from "../../generation/constraints.ts";
import { pathText } from "../../core/check.ts";
import { boundedArray, LIMITS, refuse, text } from "../../core/fields.ts";
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
import { type CalledTool, joinedName, SHELL, uniqueName } from "./called_tool.ts";

/* The tools of /v1/responses. The model reads all of them as functions; calls are returned in the tool's own format. */

/** Types of tools that OpenAI's servers run. The prompt omits them. */
const HOSTED = [
  "web_search",
  "web_search_2025_08_26",
  "web_search_preview",
  "web_search_preview_2025_03_11",
  "file_search",
  "code_interpreter",
  "image_generation",
  "computer",
  "computer_use",
  "computer_use_preview",
  "mcp",
  "shell",
  "apply_patch",
  "tool_search",
  "programmatic_tool_calling",
] as const;

const functionTool = functionBody.extend({ type: z.literal("function") }).openapi("FunctionTool");

const customTool = z.object({
  type: z.literal("custom"),
  name: functionName,
  description: z.string().nullish(),
  format: z.discriminatedUnion("type", [
    z.object({ type: z.literal("text") }),
    z.object({
      type: z.literal("grammar"),
      syntax: z.enum(["lark", "regex"]),
      definition: text(1, LIMITS.grammarCharacters),
    }),
  ], { error: 'must be "text" or "grammar"' }).nullish().openapi({
    description: "The grammar is shown to the model, but not enforced",
  }),
}).openapi("CustomTool");

const shellTool = z.object({ type: z.literal(SHELL) });

const namespaceTool = z.object({
  type: z.literal("namespace"),
  name: functionName,
  description: z.string().nullish(),
  tools: boundedArray(
    z.discriminatedUnion("type", [functionTool, customTool], { error: 'must be "function" or "custom"' }),
    0,
    LIMITS.tools,
  ),
}).openapi("NamespaceTool");

const hostedTool = z.looseObject({ type: z.enum(HOSTED) });

const KINDS = ["function", "custom", SHELL, "namespace", ...HOSTED].map((type) => `"${type}"`).join(", ");

const tool = z.discriminatedUnion("type", [functionTool, customTool, shellTool, namespaceTool, hostedTool], {
  error: `must be one of ${KINDS}`,
});

const inNamespace = { name: functionName, namespace: functionName.nullish() };
const named = [
  z.object({ type: z.literal("function"), ...inNamespace }),
  z.object({ type: z.literal("custom"), ...inNamespace }),
  shellTool,
  hostedTool,
] as const;

const allowed = z.object({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: boundedArray(z.discriminatedUnion("type", named), 1, LIMITS.tools),
});

const CHOICES = `must be ${TOOL_MODES.map((mode) => `"${mode}"`).join(", ")}, ` +
  '{"type":"function","name":…}, {"type":"custom","name":…}, {"type":"local_shell"} or ' +
  '{"type":"allowed_tools","mode":…,"tools":…}';

const toolChoice = z.union([
  z.enum(TOOL_MODES),
  z.discriminatedUnion("type", [...named, allowed], {
    error: 'must be "function", "custom", "local_shell" or "allowed_tools"',
  }),
], { error: CHOICES });

export const responseToolFields = {
  tools: boundedArray(tool, 0, LIMITS.tools).nullish(),
  tool_choice: toolChoice.nullish(),
  parallel_tool_calls: z.boolean().nullish().openapi({ description: "Default true" }),
};

type Fields = { [name in keyof typeof responseToolFields]?: z.output<(typeof responseToolFields)[name]> };
type NamedTool = z.output<(typeof named)[number]>;
type GivenTool = z.output<typeof tool>;

interface PlacedTool {
  readonly given: Exclude<GivenTool, { type: "namespace" } | z.output<typeof hostedTool>>;
  readonly namespace?: string;
  readonly path: readonly PropertyKey[];
}

/** A tool of a request that the client runs. */
interface ClientTool extends CalledTool {
  /** The tool as the model reads it, with a unique name. */
  readonly tool: Tool;
  /** The tool's path in the request. */
  readonly path: readonly PropertyKey[];
}

/** Returns the tools that the client runs, in their order, each with the name that the model reads. */
export function clientTools({ tools }: Fields): ClientTool[] {
  const flat = (tools ?? []).flatMap(withPlaces);
  const taken = new Set(
    flat.flatMap(({ given, namespace }) => namespace === undefined && given.type !== SHELL ? given.name : []),
  );
  return flat.map(({ given, namespace, path }) => {
    const { type } = given;
    if (type === SHELL) {
      return { type, name: SHELL, path, tool: { ...SHELL_TOOL, name: uniqueName(SHELL, taken) } };
    }
    const { name } = given;
    const unique = namespace === undefined ? name : uniqueName(joinedName(name, namespace), taken);
    const tool = type === "custom" ? asFunction(given, unique) : { ...toolOf(given), name: unique };
    return { type, name, namespace, path, tool };
  });
}

/** Returns a tool, or the tools of a namespace, with their paths in the request. */
function withPlaces(given: GivenTool, i: number): PlacedTool[] {
  if (given.type === "namespace") {
    return given.tools.map((tool, k) => {
      return { given: tool, namespace: given.name, path: ["tools", i, "tools", k] };
    });
  }
  return isHosted(given) ? [] : [{ given, path: ["tools", i] }];
}

const SHELL_TOOL = {
  description: "Runs a command on the user's computer and returns its output.",
  parameters: {
    type: "object",
    properties: {
      command: {
        type: "array",
        items: { type: "string" },
        minItems: 1,
        description: "The program and its arguments",
      },
      working_directory: { type: "string" },
      timeout_ms: { type: "integer", minimum: 1 },
    },
    required: ["command"],
    additionalProperties: false,
  },
  strict: true,
};

/** Returns a custom tool as a function with one text argument. */
function asFunction({ description, format }: z.output<typeof customTool>, name: string): Tool {
  const rule = format?.type === "grammar"
    ? `The input must follow this ${format.syntax === "lark" ? "Lark grammar" : "regular expression"}:\n` +
      format.definition
    : undefined;
  const told = [description, rule].filter((text) => text).join("\n\n");
  return {
    name,
    description: told === "" ? undefined : told.toWellFormed(),
    parameters: {
      type: "object",
      properties: { input: { type: "string" } },
      required: ["input"],
      additionalProperties: false,
    },
    strict: true,
  };
}

function isHosted<Given extends { type: string }>(
  given: Given,
): given is Extract<Given, z.output<typeof hostedTool>> {
  return (HOSTED as readonly string[]).includes(given.type);
}

/** Returns the types of the tools that are left out, because OpenAI's servers run them. */
export function hostedTypes({ tools }: Fields): string[] {
  return tools?.filter(isHosted).map(({ type }) => type) ?? [];
}

interface ResponseTools {
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  readonly parallelToolCalls: boolean;
}

/** Returns the tools for a chat form, or undefined when the request has none. */
export function responseTools(body: Fields): ResponseTools | undefined {
  const all = clientTools(body);
  if (all.length === 0) return undefined;
  const choice = body.tool_choice ?? "auto";
  // Choices that name no existing tool were refused before.
  const chosen = typeof choice === "string" ? all : namedTools(choice).flatMap((name) => find(name, all));
  const isAllowed = typeof choice === "object" && choice.type === "allowed_tools";
  return {
    tools: (isAllowed ? all.filter((tool) => chosen.includes(tool)) : all).map(({ tool }) => tool),
    toolChoice: typeof choice === "string"
      ? choice
      : choice.type === "allowed_tools"
      ? choice.mode
      : { name: chosen[0].tool.name },
    parallelToolCalls: body.parallel_tool_calls ?? true,
  };
}

/** Returns the tools that a choice names. */
function namedTools(choice: Exclude<z.output<typeof toolChoice>, string>): NamedTool[] {
  return choice.type === "allowed_tools" ? choice.tools : [choice];
}

/** Returns the tools that a choice may mean. Without a namespace, it may mean a tool in any namespace. */
function find(choice: NamedTool, all: readonly ClientTool[]): ClientTool[] {
  if (isHosted(choice)) return [];
  if (choice.type === SHELL) return all.filter(({ type }) => type === SHELL);
  const same = all.filter(({ type, name }) => type === choice.type && name === choice.name);
  const exact = same.filter(({ namespace }) => namespace === (choice.namespace ?? undefined));
  return exact.length === 0 && !choice.namespace ? same : exact;
}

/** Returns the schemas that the arguments of tool calls must follow. */
export function responseToolForms(body: Fields): AskedForm[] {
  return clientTools(body).flatMap(({ type, tool, path }) =>
    type === "function" ? toolForm(tool, `${pathText(path)}.parameters`) : []
  );
}

/** Checks rules across fields: unique names, choices that name existing tools, and bounded total size. */
export function checkResponseTools(body: Fields, ctx: z.RefinementCtx): void {
  const { tools, tool_choice: choice } = body;
  const most = LIMITS.tools;
  const count = (tools ?? []).reduce(
    (sum, tool) => sum + (tool.type === "namespace" ? tool.tools.length : 1),
    0,
  );
  if (count > most) {
    const message =
      `Invalid "tools": must have at most ${most} tools, those in namespaces included (got ${count})`;
    return refuse(ctx, ["tools"], "invalid_value", message);
  }
  checkSize(tools ?? [], "tools", ctx);
  const all = clientTools(body);
  // Names contain no space, so a space separates the namespace from the name.
  const names = all.map(({ name, namespace = "" }) => `${namespace} ${name}`);
  checkNames(names, (i) => [...all[i].path, all[i].type === SHELL ? "type" : "name"], ctx);
  if (choice === "required" && all.length === 0) {
    refuse(
      ctx,
      ["tool_choice"],
      "invalid_value",
      'Invalid "tool_choice": "required" needs tools' + leftOut(tools),
    );
  }
  if (typeof choice === "object" && choice !== null) checkNamed(choice, all, ctx);
}

function leftOut(tools: Fields["tools"]): string {
  const [type] = hostedTypes({ tools });
  return type === undefined ? "" : `, and this server cannot run tools of the type "${type}"`;
}

function checkNamed(
  choice: Exclude<z.output<typeof toolChoice>, string>,
  all: readonly ClientTool[],
  ctx: z.RefinementCtx,
): void {
  const namedOnes = namedTools(choice);
  // Hosted tools among the allowed ones are dropped, as in `tools`.
  const mayDrop = namedOnes.some((named) => !isHosted(named));
  namedOnes.forEach((named, i) => {
    const path = choice.type === "allowed_tools" ? ["tool_choice", "tools", i] : ["tool_choice"];
    if (isHosted(named)) {
      if (mayDrop) return;
      const message = `Unsupported "${
        pathText(path)
      }": this server cannot run tools of the type "${named.type}"`;
      return refuse(ctx, [...path, "type"], "unsupported_parameter", message);
    }
    const found = find(named, all);
    if (found.length === 1) return;
    const name = named.type === SHELL ? SHELL : named.name;
    const place = [...path, named.type === SHELL ? "type" : "name"];
    if (found.length === 0) return checkChoice(name, [], place, "tools", ctx);
    const message = `Invalid "${pathText(place)}": several namespaces have a tool "${name}"; add "namespace"`;
    refuse(ctx, place, "invalid_value", message);
  });
}

/** Returns the tools as the answer lists them, without omitted tools. */
export function toldTools({ tools }: Fields): { type: string; [field: string]: unknown }[] {
  return (tools ?? []).filter((tool) => !isHosted(tool)).map((tool) => {
    if (tool.type !== "function") return tool;
    const { type, name, description = null, parameters = null, strict } = tool;
    return { type, name, description, parameters, strict: strict ?? false };
  });
}
