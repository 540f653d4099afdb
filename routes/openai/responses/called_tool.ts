/* Converts tool names: the model reads flat names, and the API has namespaces. */

export const SHELL = "local_shell";

/** A tool as calls in the API name it. */
export interface CalledTool {
  readonly type: "function" | "custom" | typeof SHELL;
  readonly name: string;
  readonly namespace?: string;
}

/** Maximum length of a tool's name, with space left for a number. */
const LONGEST = 120;

/** Returns the model's name of a tool. The name is the same in every request, so that prompts share prefixes. */
export function joinedName(name: string, namespace: string | null | undefined): string {
  if (!namespace) return name;
  return `${namespace}${namespace.endsWith("__") ? "" : "__"}${name}`.slice(0, LONGEST);
}

/** Returns the name, with a number if it is taken, and marks it as taken. */
export function uniqueName(name: string, taken: Set<string>): string {
  let unique = name;
  for (let n = 2; taken.has(unique); n++) unique = `${name}_${n}`;
  taken.add(unique);
  return unique;
}
