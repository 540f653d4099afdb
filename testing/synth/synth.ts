/**
 * Seeded models for tests: GGUF files of small shapes, in any format, the same bytes on every machine. Weights come
 * out near a standard deviation of 0.02; block formats are random codes under scales that give that spread, so no
 * quantiser is involved and a block may hold every code and every scale that its format allows.
 */

import { byteLengthOf } from "../../engine/gguf/tensor_types.ts";
import { GgufBuilder } from "../../engine/gguf/testing.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { SynthFile } from "./file.ts";
import { type Architecture, SYNTH_MODELS } from "./registry.ts";
import { type Chat, describeTokens } from "./tokens.ts";

export type { Architecture } from "./registry.ts";
export { weights } from "./weights.ts";

/** What a synthetic model is; the same values give the same bytes. */
export interface SynthOptions {
  readonly architecture: Architecture;
  /** One type for every matrix, or several that the matrices take in turn. */
  readonly types: readonly TensorType[];
  readonly seed: number;
  readonly layers?: number;
  /** The model's own context, in tokens. */
  readonly context?: number;
  /** Tokens; not fewer than 258. */
  readonly vocabulary?: number;
  readonly chat?: Chat;
  /** Layers behind the others that draft tokens, of families that have such. */
  readonly drafts?: number;
  /** NVFP4 comes with what its values are multiplied by: the same model. */
  readonly factors?: boolean;
  /** Leaves all matrices zero, for tests that only compile the model's plan. */
  readonly hollow?: boolean;
  /** What the file says of whole texts. */
  readonly texts?: SynthTexts;
  /** Writes what the matrices stand for in F32: the same model for arithmetic that rounds no activations. */
  readonly dequantized?: boolean;
}

/** Keys and tensors of models that embed or rank. */
export interface SynthTexts {
  /** `pooling_type`. */
  readonly pooling?: number;
  /** Rows of the head that ranks. */
  readonly labels?: number;
  /** Texts end with EOS. */
  readonly addEos?: boolean;
  /** Makes a prompt of a query and a document. */
  readonly template?: string;
}

/** The bytes of a model file. */
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
