import type { Backend } from "../backend/backend.ts";
import type { Drafter } from "./drafter.ts";
import { LookupDrafter } from "./lookup.ts";
import { MtpDrafter } from "./mtp.ts";

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

/**
 * The drafters that are meant, those to be asked first before others. `layer`: what computes the model's own layer that drafts, where it
 * has one; `model`: a smaller model, where there is one.
 */
export function chooseDrafters(speculate: Speculate, layer?: Backend, model?: Drafter): Drafter[] {
  const lookup = speculate === "auto" || speculate === "lookup" ? [new LookupDrafter()] : [];
  return [...lookup, ...layer ? [new MtpDrafter(layer)] : [], ...model ? [model] : []];
}
