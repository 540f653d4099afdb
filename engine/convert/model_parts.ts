import type { DecoderConfig } from "./decoder_config.ts";
import type { Entry } from "./metadata.ts";

/** What an architecture makes of a checkpoint, but for the output, which all have. */
export interface ModelParts {
  readonly decoder: DecoderConfig;
  readonly entries: readonly Entry[];
  /** Applied to the last norm's weights. */
  readonly outputNorm?: (weight: number) => number;
  /** GGUF's and the checkpoint's names of the last norm, where they are others. */
  readonly lastNorm?: { readonly name: string; readonly tensor: string };
  /** Whether the output is the embedding, where the model says it in a way of its own. */
  readonly tied?: boolean;
}
