/**
 * Seeded models for tests: small GGUF files in any format, with the same bytes on every machine. Weights have a
 * standard deviation near 0.02. Block formats get random codes, with scales that give this deviation. So no quantizer
 * is needed, and blocks may hold every code and scale of the format.
 */

import { byteLengthOf } from "../../engine/gguf/tensor_types.ts";
import { GgufBuilder } from "../../engine/gguf/testing.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { SynthFile } from "./file.ts";
import { type Architecture, SYNTH_MODELS } from "./registry.ts";
import { type Chat, describeTokens } from "./tokens.ts";

export type { Architecture } from "./registry.ts";
export { weights } from "./weights.ts";

/** Describes a synthetic model. The same options give the same bytes. */
export interface SynthOptions {
  readonly architecture: Architecture;
  /** Types of matrices: one for all, or several that alternate. */
  readonly types: readonly TensorType[];
  readonly seed: number;
  readonly layers?: number;
  /** The model's own context, in tokens. */
  readonly context?: number;
  /** Number of tokens in the vocabulary; at least 258. */
  readonly vocabulary?: number;
  readonly chat?: Chat;
  /** Number of additional drafting layers, for families that support them. */
  readonly drafts?: number;
  /** Whether to write NVFP4 with factors in separate tensors. The weights keep their values. */
  readonly factors?: boolean;
  /** Whether to leave all matrices zero, for tests that only compile the model's plan. */
  readonly hollow?: boolean;
  /** Keys and tensors for embedding and ranking. */
  readonly texts?: SynthTexts;
  /** Whether to write the matrices' values in F32. The model is the same, but kernels do not round activations. */
  readonly dequantized?: boolean;
}

/** Keys and tensors of models that embed or rank. */
export interface SynthTexts {
  /** Value of the key `pooling_type`. */
  readonly pooling?: number;
  /** Labels of the ranking head. */
  readonly labels?: number;
  /** Whether texts end with EOS. */
  readonly addEos?: boolean;
  /** Template that turns a query and a document into a prompt. */
  readonly template?: string;
}

/** Returns the bytes of a model file. */
export function synthesize(options: SynthOptions): Uint8Array<ArrayBuffer> {
  const { architecture: name, seed, types, dequantized, factors, hollow, texts = {} } = options;
  const family = SYNTH_MODELS[name];
  const shape = {
    ...family.tiny,
    layers: options.layers ?? family.tiny.layers,
    context: options.context ?? family.tiny.context,
    vocabulary: options.vocabulary ?? family.tiny.vocabulary,
    drafts: options.drafts,
  };
  const builder = new GgufBuilder();
  const sink = {
    set: builder.set.bind(builder),
    array: builder.array.bind(builder),
    tensor: (name: string, type: TensorType, shape: readonly number[], make: () => ArrayBufferView) =>
      void builder.tensor(name, type, shape, hollow && shape.length > 1 ? zeros(type, shape) : make()),
  };
  const typeOf = (index: number) => types[index % types.length];
  const file = new SynthFile(sink, family.architecture ?? name, {
    seed: `${name} ${seed}`,
    typeOf,
    dequantized,
    factors,
  });
  builder.set("general.architecture", "STRING", file.architecture).set("general.name", "STRING", "synthetic");
  family.write(file, shape);
  describeTokens(file, shape.vocabulary, options.chat);
  describeTexts(file, texts);
  if (texts.labels) family.writeHead?.(file, shape);
  if (texts.labels) file.matrix("cls.output", shape.embedding, texts.labels);
  return builder.build().bytes;
}

function zeros(type: TensorType, shape: readonly number[]): Uint8Array {
  return new Uint8Array(byteLengthOf(type, shape.reduce((product, n) => product * n)));
}

function describeTexts(file: SynthFile, { pooling, labels = 0, addEos, template }: SynthTexts): void {
  const names = Array.from({ length: labels }, (_, i) => `label ${i}`);
  if (labels > 0) file.keys("classifier.output_labels", "STRING", names);
  if (pooling !== undefined) file.key("pooling_type", "UINT32", pooling);
  if (addEos) file.sink.set("tokenizer.ggml.add_eos_token", "BOOL", true);
  if (template !== undefined) file.sink.set("tokenizer.chat_template.rerank", "STRING", template);
}
