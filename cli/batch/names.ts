import { bodyExaminer } from "../../lib/batch/check_body.ts";
import type { Examine } from "../../lib/batch/jobs.ts";
import { UsageError } from "../shared/flags.ts";
import { modelId } from "../shared/model.ts";
import { texts } from "../shared/settings.ts";
import { once } from "../shared/terminal.ts";
import { asFlags } from "../shared/words.ts";

export const ALIAS = texts("NAME", {
  help: "another name that lines may use for the model, such as gpt-4o-mini; may be given several times",
});

interface Names {
  readonly model: string | undefined;
  readonly alias: readonly string[];
}

interface Examined extends Names {
  readonly strictParameters: boolean;
  readonly lora: readonly string[] | undefined;
}

const MAX_NAME = 256;

/** Returns the names that `--alias` gives the model. */
export function aliasesOf({ alias: aliases }: Pick<Names, "alias">): readonly string[] {
  const wrong = aliases.find((name) => name.length > MAX_NAME || name.includes("="));
  if (wrong === undefined) return aliases;
  throw new UsageError(`--alias must be a name of 1 to ${MAX_NAME} characters without "=" (got "${wrong}")`);
}

/**
 * Returns a function that checks the lines of a job for this model. `check` and `run` use the same function.
 */
export function examinerOf(names: Examined, note: (text: string) => void): Examine {
  const { strictParameters, lora } = names;
  const models = [modelId(names.model), ...aliasesOf(names)];
  return bodyExaminer({ models, lora, words: asFlags, strictParameters, warn: once(note) });
}
