import { ArchitectureKeys } from "../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../gguf/hparams/hparams.ts";
import type { PlanBuilder } from "../plan/builder.ts";
import type { Architecture } from "./architecture.ts";
import type { Checkpoint } from "./checkpoint.ts";
import { buildDecoder, type DecoderTraits } from "./parts/decoder.ts";
import type { Rope } from "./parts/rope.ts";
import type { Traits } from "./traits.ts";

/** A family of decoders: one value of `general.architecture`, and its differences from Llama's decoder. */
export interface Family extends Omit<Architecture, "build"> {
  /** `general.architecture`. */
  readonly architecture: string;
  readonly traits: Traits;
  /** Returns what the file's keys and tensors say about the graph. Runs before the embedding is built. */
  readonly read?: (b: PlanBuilder, h: Hparams, rope: Rope) => DecoderTraits;
  /** The checkpoints that conversion reads for the family, by `model_type`. */
  readonly checkpoints?: Readonly<Record<string, Checkpoint>>;
}

/** Returns the family's decoder. */
export function decoderOf({ traits, read, ...family }: Family): Architecture {
  return {
    ...family,
    allows: { ...family.allows, layerNorm: traits.layerNorms },
    build: (b, h, rope) => buildDecoder(b, h, rope, { ...traits, ...read?.(b, h, rope) }),
  };
}

/** Returns the keys of the file that a plan is built for. */
export function decoderKeys({ file }: PlanBuilder): ArchitectureKeys {
  return ArchitectureKeys.of(file.metadata);
}
