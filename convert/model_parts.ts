import type { DecoderConfig } from "../engine/architectures/checkpoint.ts";
import type { Entry } from "./write/metadata.ts";

/** Tensors that may be left out, by what they are. */
export type LeftOut = readonly (readonly [what: string, name: RegExp])[];

/** What an architecture makes of a checkpoint, but for the output, which all have. */
export interface ModelParts {
  readonly decoder: DecoderConfig;
  /** Where it is not what the model type says. */
  readonly architecture?: string;
  /** Tensors of this model that the result has no use for. */
  readonly leftOut?: LeftOut;
  readonly entries: readonly Entry[];
  /** Applied to the last norm's weights. */
  readonly outputNorm?: (weight: number) => number;
  /** GGUF's and the checkpoint's names of the last norm, where they are others. */
  readonly lastNorm?: { readonly name: string; readonly tensor: string };
  /** Whether the output is the embedding, where the model says it in a way of its own. */
  readonly tied?: boolean;
}
