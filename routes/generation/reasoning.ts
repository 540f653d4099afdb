import { z } from "@hono/zod-openapi";
import { LIMITS, refuse } from "../core/fields.ts";

const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;

const budget = z.number().int().min(-1).max(LIMITS.maxTokens);

const thinking = z.object({
  type: z.enum(["enabled", "disabled", "adaptive"]),
  budget_tokens: budget.min(0).nullish(),
}).openapi({ description: "In Anthropic's format" });

export const reasoningFields = {
  reasoning_effort: z.enum(EFFORTS).nullish().openapi({
    description: "none: no thinking; other words are passed to templates that support them",
  }),
  thinking_budget_tokens: budget.nullish().openapi({
    description: "Maximum tokens of thinking; then its end is forced; -1 for no limit",
  }),
  thinking: thinking.nullish(),
};

type Fields = { [name in keyof typeof reasoningFields]?: z.output<(typeof reasoningFields)[name]> };

/** Refuses reasoning fields that contradict each other. */
export function checkReasoning(body: Fields, ctx: z.RefinementCtx): void {
  const { reasoning_effort: effort, thinking_budget_tokens: budget, thinking } = body;
  const budgets = [budget, thinking?.budget_tokens].filter((value) => value !== undefined && value !== null);
  if (budgets.length === 2 && budgets[0] !== budgets[1]) {
    const message = '"thinking_budget_tokens" and "thinking.budget_tokens" differ; send one of them';
    refuse(ctx, ["thinking", "budget_tokens"], "conflicting_parameters", message);
  }
  const off = thinking?.type === "disabled";
  if (thinking && effort && (effort === "none") !== off) {
    const message = `"reasoning_effort" ${JSON.stringify(effort)} and "thinking" ${
      JSON.stringify(thinking.type)
    } contradict each other; send one of them`;
    refuse(ctx, ["thinking", "type"], "conflicting_parameters", message);
  }
}

/**
 * Returns the reasoning options for a chat form. The template's `variables` also count: enable_thinking can turn
 * reasoning off.
 */
export function reasoningOf(
  body: Fields,
  variables: Readonly<Record<string, unknown>>,
): { effort?: false | string; thinkingBudget?: number } {
  const { reasoning_effort: effort, thinking } = body;
  const off = effort === "none" || thinking?.type === "disabled" || variables.enable_thinking === false;
  const budget = body.thinking_budget_tokens ?? thinking?.budget_tokens ?? -1;
  return {
    ...(off ? { effort: false } : effort ? { effort } : {}),
    ...(budget >= 0 ? { thinkingBudget: budget } : {}),
  };
}
