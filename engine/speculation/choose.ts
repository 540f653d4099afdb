import type { Drafter } from "./drafter.ts";
import { LookupDrafter } from "./lookup.ts";

/**
 * Where drafts of an answer's next tokens come from: wherever they pay, nowhere, the text's own repetitions, layers of the model
 * that are made for it, or another, smaller model.
 *
 * ```ts
 * import { loadModel, type Speculate } from "compy";
 *
 * const speculate: Speculate = "lookup";
 * await using model = await loadModel(undefined, { speculate });
 * ```
 */
export type Speculate = "auto" | "off" | "lookup" | "mtp" | "draft";
/** All of them. */
export const SPECULATE: readonly Speculate[] = ["auto", "off", "lookup", "mtp", "draft"];

/** The drafters that are meant, those to be asked first before others; `model`: a smaller model, where there is one. */
export function chooseDrafters(speculate: Speculate, model?: Drafter): Drafter[] {
  const lookup = speculate === "auto" || speculate === "lookup" ? [new LookupDrafter()] : [];
  return [...lookup, ...model ? [model] : []];
}
