import type { DecoderConfig } from "../engine/architectures/checkpoint.ts";
import type { Entry } from "./write/metadata.ts";

/** Name patterns of tensors to leave out, each with the model part that they belong to. */
export type LeftOut = readonly (readonly [what: string, name: RegExp])[];

/** A converted decoder, except its output matrix, which `convertModel` adds. */
export interface ModelParts {
  readonly decoder: DecoderConfig;
  /** Architecture of the file, if it is not the model type's. */
  readonly architecture?: string;
  /** Tensors that are left out of this model. */
  readonly leftOut?: LeftOut;
  readonly entries: readonly Entry[];
  /** Function to apply to the weights of the final norm. */
  readonly outputNorm?: (weight: number) => number;
  /** Names of the final norm in GGUF and in the checkpoint; by default `output_norm.weight` and `norm.weight`. */
  readonly lastNorm?: { readonly name: string; readonly tensor: string };
  /** Whether the output matrix is the embedding; by default as `tie_word_embeddings` says. */
  readonly tied?: boolean;
}
