import type { Drafter } from "../../architectures/drafters/drafter.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { Tokenizer } from "../../tokenizer/types.ts";

/** A drafter from its own file that fits its model. */
export interface OpenedDrafter {
  readonly file: GgufFile;
  readonly description: Drafter;
  /** The model's file, with the drafter's tensors. */
  readonly joined: GgufFile;
  /** The model's tokenizer. */
  readonly tokenizer: Tokenizer;
  /** Maps the drafter's tokens to the model's tokens; undefined if both use the same tokens. */
  readonly tokens?: Int32Array;
}

/** Opens a drafter's file and checks that it fits the model's file. Throws GgufError and EngineError. */
export type OpenDrafter = (file: GgufFile, model: GgufFile) => Promise<OpenedDrafter>;
