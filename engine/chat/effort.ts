import type { ChatRequest } from "./types.ts";

/** Template variables that control the amount of a model's thinking. */

type Variables = Record<string, unknown>;

/** The nearest effort word that every template with efforts knows. */
const NEAREST: Readonly<Record<string, string>> = { minimal: "low", xhigh: "high", max: "high" };

/** Returns the template's variables for effort. A setting that the request lacks is left to the template. */
export function effortVariables(
  source: string,
  { effort, thinkingBudget = Infinity }: Pick<ChatRequest, "effort" | "thinkingBudget">,
): Variables {
  const takesBudget = /\bthinking_budget\b/.test(source);
  const budget: Variables = takesBudget && Number.isFinite(thinkingBudget)
    ? { thinking_budget: thinkingBudget }
    : {};
  if (effort === undefined) return budget;
  const thinks = effort !== false && effort !== "none";
  const variables = budget;
  if (/\benable_thinking\b/.test(source)) variables.enable_thinking = thinks;
  // Matches a variable of that name, but not a message's field.
  if (/(?<![.\w'"[])thinking\b(?!['"\w])/.test(source)) variables.thinking = thinks;
  if (!thinks && takesBudget) variables.thinking_budget = 0;
  if (/\breasoning_effort\b/.test(source)) variables.reasoning_effort = effortWord(source, effort);
  return variables;
}

/** Returns the template's word for the effort. */
function effortWord(source: string, effort: false | string): string {
  const word = effort === false ? "none" : effort;
  if (source.includes(`"${word}"`) || source.includes(`'${word}'`)) return word;
  if (word === "none") return "low";
  return NEAREST[word] ?? word;
}
