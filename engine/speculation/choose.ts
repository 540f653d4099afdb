import type { Backend } from "../backend/backend.ts";
import type { Drafter } from "./drafter.ts";
import { LookupDrafter } from "./lookup.ts";
import { MtpDrafter } from "./mtp.ts";

/**
 * Source of draft tokens: "auto" uses any source that pays off, "off" none, "lookup" repetitions in the text,
 * "mtp" the model's own drafting layers, and "draft" a smaller model.
 *
 * ```ts
 * import { loadModel, type Speculate } from "compy";
 *
 * const speculate: Speculate = "lookup";
 * await using model = await loadModel(undefined, { speculate });
 * ```
 */
export type Speculate = "auto" | "off" | "lookup" | "mtp" | "draft";
/** All values. */
export const SPECULATE: readonly Speculate[] = ["auto", "off", "lookup", "mtp", "draft"];

/**
 * Returns the drafters for a setting, in the order to ask them. `layer` is the backend of the model's own
 * drafting layer, `model` a smaller model's drafter, where they exist.
 */
export function chooseDrafters(speculate: Speculate, layer?: Backend, model?: Drafter): Drafter[] {
  const lookup = speculate === "auto" || speculate === "lookup" ? [new LookupDrafter()] : [];
  return [...lookup, ...layer ? [new MtpDrafter(layer)] : [], ...model ? [model] : []];
}
