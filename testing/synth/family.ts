import type { SynthFile } from "./file.ts";

/** What all shapes have. */
export interface Dimensions {
  readonly embedding: number;
  readonly feedForward: number;
  readonly layers: number;
  readonly vocabulary: number;
  readonly context: number;
}

/** Models of one kind: their keys and tensors, in a tiny shape for tests and in those of published models. */
export interface Family<S extends Dimensions = Dimensions> {
  /** `general.architecture`, where it is not the name in the registry. */
  readonly architecture?: string;
  /** Answers nothing but rows of whole texts. */
  readonly encoder?: boolean;
  readonly tiny: S;
  /** By name, for `deno task synth`. */
  readonly real?: Readonly<Record<string, S>>;
  /** The keys beside the tokenizer's, and the tensors. */
  write(file: SynthFile, shape: S): void;
  /** What a head that ranks has before its labels. */
  writeHead?(file: SynthFile, shape: S): void;
}

/** The tiny shapes' dimensions. The vocabulary is no multiple of any panel's rows, so that the last panel of the output is partial. */
export const TINY: Dimensions = {
  embedding: 256,
  feedForward: 768,
  layers: 4,
  vocabulary: 500,
  context: 2048,
};
