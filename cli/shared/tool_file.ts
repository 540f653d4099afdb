import type { Tool, ToolChoice } from "../../lib/chat.ts";
import { checkTools } from "../../lib/messages.ts";
import { explained } from "../../lib/system_errors.ts";
import { UsageError } from "./flags.ts";
import { isObject } from "../../lib/model.ts";

/** The tools that the model may call. */
export interface GivenTools {
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  /** Whether an answer must contain a call. */
  readonly mustCall: boolean;
}

const MODES = ["none", "auto", "required"] as const;

/**
 * Reads tools from a file: a list of functions, bare or in the form of server requests. `choice` is a mode or
 * a tool's name.
 */
export async function readTools(file: string, choice = "auto"): Promise<GivenTools> {
  const tools = parsed(file, await readText(file));
  const mode = MODES.find((mode) => mode === choice);
  if (mode === undefined && !tools.some(({ name }) => name === choice)) {
    const names = tools.map(({ name }) => name).join(", ");
    throw new UsageError(
      `--tool-choice must be ${MODES.join(", ")} or one of the tools ${names} (got "${choice}")`,
    );
  }
  return { tools, toolChoice: mode ?? { name: choice }, mustCall: mode === undefined || mode === "required" };
}

async function readText(file: string): Promise<string> {
  try {
    return await Deno.readTextFile(file);
  } catch (error) {
    throw explained(`Cannot read the tools "${file}"`, error);
  }
}

function parsed(file: string, text: string): Tool[] {
  const problem = (what: string) => new Error(`Cannot use the tools "${file}": ${what}`);
  let entries: unknown;
  try {
    entries = JSON.parse(text);
  } catch (error) {
    throw problem(`the file is not JSON: ${(error as Error).message}`);
  }
  if (!Array.isArray(entries) || entries.length === 0) throw problem("it must be a list of functions");
  const tools = entries.map((entry, i) => {
    const tool = toolOf(entry);
    if (typeof tool === "string") throw problem(`entry ${i} ${tool}`);
    return tool;
  });
  try {
    checkTools(tools);
  } catch (error) {
    throw problem((error as Error).message);
  }
  return tools;
}

/** Returns a tool, or a text that says what is wrong with the tool. */
function toolOf(entry: unknown): Tool | string {
  const given = isObject(entry) && isObject(entry.function) ? entry.function : entry;
  if (!isObject(given)) return "is no function";
  const { name, description, parameters } = given;
  if (typeof name !== "string") return "has no name";
  if (description !== undefined && typeof description !== "string") {
    return "has a description that is not a text";
  }
  if (parameters !== undefined && !isObject(parameters)) {
    return "has parameters that are not the schema of an object";
  }
  return { name, description, parameters };
}
