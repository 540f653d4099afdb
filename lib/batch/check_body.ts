import { hash } from "node:crypto";
import { checkConstraint } from "../../engine/load/load.ts";
import { adapterChoices } from "../../engine/load/adapters/adapter_choice.ts";
import { modelName } from "../../engine/models/folder.ts";
import { adaptedId, type Constraint, ConstraintError, render, type Words } from "../../engine/mod.ts";
import type { Examine } from "../../jobs/check.ts";
import { GENERATIONS } from "../../routes/generations.ts";
import { ApiError } from "../../routes/core/errors.ts";
import type { ParameterOptions } from "../../routes/core/parameters.ts";

/** Number of constraints whose check results are remembered. Most files repeat a few constraints. */
const REMEMBERED = 10_000;

interface ExamineOptions extends ParameterOptions {
  /** Names that lines may give the model, its own id first. Without them, lines may use any name. */
  readonly models?: readonly string[];
  /** The model's adapters, as for its load. Lines may name the model with one of its adapters. */
  readonly lora?: readonly string[];
  /** Names the settings in messages. */
  readonly words?: Words;
}

/**
 * Returns a function that checks the bodies of lines without a model: fields, constraints and the model name. A run and
 * a check find the same errors.
 */
export function bodyExaminer({ models, lora, words, ...parameters }: ExamineOptions = {}): Examine {
  const adapted = adapterChoices(lora).map(({ path }) =>
    adaptedId(models?.[0] ?? "", { name: modelName(path) })
  );
  const known = new Map<string, string | undefined>();

  /** Returns why the constraint is refused; undefined if it is valid. */
  async function refusalOf(constraint: Constraint): Promise<string | undefined> {
    const key = hash("sha256", JSON.stringify(constraint));
    if (known.has(key)) return known.get(key);
    const refusal = await checkConstraint(constraint).then(() => undefined, (error) => {
      if (error instanceof ConstraintError) return error.message;
      throw error;
    });
    if (known.size === REMEMBERED) known.clear();
    known.set(key, refusal);
    return refusal;
  }

  return async ({ url, body }) => {
    const generation = GENERATIONS.find((generation) => generation.url === url)!;
    try {
      for (const { param, constraint } of generation.check(body, parameters)) {
        const reason = await refusalOf(constraint);
        if (reason === undefined) continue;
        throw new ApiError(400, "invalid_constraint", `"${param}" cannot be used: ${reason}`, { param });
      }
      if (!adapted.includes(String(body.model))) checkModel(body.model, models, words);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      return { code: error.code, message: error.message, param: error.param && `body.${error.param}` };
    }
  };
}

/** Throws ApiError for a model name that no model has. The message shortens and escapes the untrusted name. */
function checkModel(name: unknown, models: readonly string[] | undefined, words?: Words): void {
  if (models === undefined || typeof name !== "string" || models.includes(name)) return;
  const shown = JSON.stringify(name.length > 64 ? `${name.slice(0, 64).toWellFormed()}…` : name);
  const known = models.map((model) => `"${model}"`).join(" or ");
  const message = [
    `"model" must be ${known} (got ${shown}): name that one, or make it an alias (`,
    { aliases: undefined },
    ")",
  ];
  throw new ApiError(404, "model_not_found", render(message, words), { param: "model" });
}
