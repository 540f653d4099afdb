import type { Backend } from "../backend/backend.ts";
import { BlockDrafter, type BlockOptions } from "./block_drafter.ts";
import type { Drafter } from "./drafter.ts";
import { LookupDrafter } from "./lookup.ts";
import { type LayerOptions, MtpDrafter } from "./mtp.ts";

/**
 * Source of draft tokens: "auto" uses any source that pays off, "off" none, "lookup" repetitions in the text,
 * "mtp" the model's own drafting layers, and "draft" the file that `draft` names.
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
 * Returns the drafters for a setting, in the order in which they are asked. `model`: the drafter that runs a draft layer
 * or a smaller model, if there is one.
 */
export function chooseDrafters(speculate: Speculate, model?: Drafter): Drafter[] {
  const lookup = speculate === "auto" || speculate === "lookup" ? [new LookupDrafter()] : [];
  return [...lookup, ...model ? [model] : []];
}

/** A drafter in its own file. */
interface OwnFile extends Pick<LayerOptions, "tokens"> {
  readonly description: Pick<LayerOptions, "onePosition"> & {
    readonly block?: Pick<BlockOptions, "rows" | "mask">;
  };
}

/** Returns the drafter that runs the plan's draft layers. With `block`, one pass drafts all tokens. */
export function layerDrafter(
  backend: Backend,
  limits: Pick<BlockOptions, "maxRows" | "maxLogitRows">,
  { tokens, description: { block, onePosition } = {} }: Partial<OwnFile> = {},
): Drafter {
  return block
    ? new BlockDrafter(backend, { ...limits, ...block, tokens })
    : new MtpDrafter(backend, { tokens, onePosition });
}
