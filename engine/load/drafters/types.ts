import type { DraftBlock, Drafter } from "../../architectures/drafters/drafter.ts";
import type { GgufFile } from "../../gguf/types.ts";

/** A drafter from its own file that fits its model. */
export interface OpenedDrafter {
  readonly description: Drafter;
  /** The model's file, with the drafter's tensors. */
  readonly joined: GgufFile;
  /** The model's token for each token of the drafter; undefined if both use the same tokens. */
  readonly tokens?: Int32Array;
  /** Whether all tokens of a draft have the position of its first token. */
  readonly onePosition?: boolean;
  /** Of a drafter that drafts all tokens in one pass. */
  readonly block?: DraftBlock;
}

/** Opens a drafter's file for the model's file. Throws GgufError and EngineError. */
export type OpenDrafter = (file: GgufFile, model: GgufFile) => Promise<OpenedDrafter>;
