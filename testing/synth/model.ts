import type { Traits } from "../../engine/architectures/traits.ts";
import type { SynthFile } from "./file.ts";

/** Sizes that all models have. */
export interface Dimensions {
  readonly embedding: number;
  readonly feedForward: number;
  readonly layers: number;
  readonly vocabulary: number;
  readonly context: number;
}

/** A kind of seeded model: its keys and tensors, in a tiny shape for tests and in shapes of published models. */
export interface SynthModel<S extends Dimensions = Dimensions> {
  /** `general.architecture`, if it differs from the name in the registry. */
  readonly architecture?: string;
  /** Whether the model only embeds whole texts. */
  readonly encoder?: boolean;
  readonly tiny: S;
  /** Traits of the tiny shape, if a family describes the model. */
  readonly traits?: Traits;
  /** Keys of config.json beside the shape's, to test the conversion of a checkpoint like the tiny shape. */
  readonly checkpoint?: Readonly<Record<string, unknown>>;
  /** Published shapes by name, for `deno task synth`. */
  readonly real?: Readonly<Record<string, S>>;
  /** Writes the tensors, and the keys other than the tokenizer's. */
  write(file: SynthFile, shape: S): void;
  /** Writes the tensors of a ranking head that precede its labels. */
  writeHead?(file: SynthFile, shape: S): void;
}

/**
 * Sizes of the tiny shapes. The vocabulary is not a multiple of any panel's rows, so the output matrix ends in a
 * partial panel.
 */
export const TINY: Dimensions = {
  embedding: 256,
  feedForward: 768,
  layers: 4,
  vocabulary: 500,
  context: 2048,
};
