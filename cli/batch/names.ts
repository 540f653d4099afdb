import { bodyExaminer } from "../../lib/batch/check_body.ts";
import type { Examine } from "../../lib/batch/jobs.ts";
import { type Flags, UsageError } from "../shared/flags.ts";
import { modelId } from "../shared/model.ts";
import { asFlags } from "../shared/words.ts";

export const ALIAS_HELP =
  `  --alias NAME     a name that lines may give the model besides its own, such as gpt-4o-mini; may be repeated`;

const MAX_NAME = 256;

/** The names that `--alias` gives the model. */
export function aliasesOf(flags: Flags): string[] {
  const aliases = flags.texts("alias");
  const wrong = aliases.find((name) => name.length > MAX_NAME || name.includes("="));
  if (wrong === undefined) return aliases;
  throw new UsageError(`--alias must be a name of 1 to ${MAX_NAME} characters without "=" (got "${wrong}")`);
}

/** Finds what is wrong with lines that the model of the options is to answer; a check and a run find the same. */
export function examinerOf(flags: Flags): Examine {
  return bodyExaminer([modelId(flags.text("model")), ...aliasesOf(flags)], asFlags);
}
