import { basename, join, resolve } from "@std/path";
import type { GgufFile, TensorType } from "../engine/gguf/types.ts";
import { chatTemplateEntries } from "./tokenizer/chat_template.ts";
import { Checkpoint } from "./checkpoint/checkpoint.ts";
import { ConvertError } from "./errors.ts";
import { type Progress, writeGguf } from "./write/gguf_writer.ts";
import { Fields, MAX_CONFIG_BYTES, MAX_TOKENIZER_BYTES, readJson } from "./checkpoint/json.ts";
import { type Entry, entry } from "./write/metadata.ts";
import { type ConvertedModel, convertModel } from "./models.ts";
import { Adapter } from "./lora/adapter.ts";
import { mergeAdapter } from "./lora/merge.ts";
import { PartialFile } from "./write/partial_file.ts";
import { denseName, readTextModules } from "./encoders/pooling.ts";
import { WeightFinder } from "./write/matrix_source.ts";
import { dequantizeCheckpoint } from "./quantized/quantized.ts";
import { readRanker } from "./encoders/ranker.ts";
import type { Quantization } from "./quantize/quantization.ts";
import { type QuantizeTo, weighs } from "./quantize/quantize_to.ts";
import { QuantizerThreads } from "./quantize/quantizer_threads.ts";
import { ColumnWeights } from "./importance.ts";
import { TensorList } from "./tensor_list.ts";
import type { QuantizationError } from "./quantize/row_encoders.ts";
import { endEntries } from "./tokenizer/special_tokens.ts";
import { tokenizerEntries } from "./tokenizer/tokenizer.ts";
import { convertTower } from "./vision/tower.ts";
import type { OutputTensor } from "./write/output_tensor.ts";
import { refusalOf, towerRefusalOf, verify } from "./write/verify.ts";

export { ConvertError } from "./errors.ts";
export { type ImportanceMatrix, type MatrixInputs, writeImportance } from "./importance.ts";
export { TOWER_TYPES } from "./vision/tower.ts";
export { QUANTIZE_TO, type QuantizeTo } from "./quantize/quantize_to.ts";

export interface ConvertOptions {
  /** Path of a folder with config.json, tokenizer.json and safetensors files. */
  readonly folder: string;
  /** Path of the file to write, which must not exist. */
  readonly out: string;
  /** Path of a folder with a LoRA adapter in PEFT's format, to merge into the matrices. */
  readonly lora?: string;
  /** Format for all matrices. Without it, every tensor keeps its bits, or conversion fails. */
  readonly quantize?: QuantizeTo;
  /** Path of an importance matrix in llama.cpp's GGUF format. Quantizers weigh the errors of columns by it. */
  readonly importance?: string;
  /** Number of threads that quantize; by default one per processor. It does not change the file. */
  readonly threads?: number;
  /** Called with the bytes done and the total, while writing and while reading back. */
  readonly progress?: (stage: "write" | "verify", done: number, total: number) => void;
  /** Stops the conversion and removes the partial file. */
  readonly signal?: AbortSignal;
}

/** Report on a written tensor. */
export interface TensorReport {
  readonly name: string;
  readonly type: TensorType;
  readonly shape: readonly number[]; // ggml order
  /** The tensor's format in the checkpoint. */
  readonly source: string;
  /** Error of a quantized tensor; undefined for other tensors. */
  readonly error?: QuantizationError;
}

export interface ConvertReport {
  readonly path: string;
  readonly fileBytes: number;
  readonly architecture: string;
  readonly tensors: readonly TensorReport[];
  /** Number of tensors that were quantized with weights of an importance matrix; undefined without one. */
  readonly weighed?: number;
  /** Number of unused checkpoint tensors, by model part. */
  readonly leftOut: Readonly<Record<string, number>>;
  /** Reason why compy cannot run the file; undefined if it can. */
  readonly refusal?: string;
}

/** Version of ggml's block formats. */
const QUANTIZATION_VERSION = 2;

/**
 * Converts a Hugging Face or MLX checkpoint into a GGUF file and returns a report. Memory holds only a few
 * MiB of a matrix at a time. The file gets its name after it is complete and verified. Throws ConvertError
 * when the checkpoint is broken or cannot be converted without loss, and Deno's errors when a file cannot be
 * read or written.
 */
export async function convertCheckpoint(options: ConvertOptions): Promise<ConvertReport> {
  const { folder, lora } = options;
  using threads = threadsOf(options);
  const quantize = await quantizationOf(options, threads);
  const config = Fields.of(...await requireJson(join(folder, "config.json"), MAX_CONFIG_BYTES));
  using checkpoint = await Checkpoint.open(folder);
  dequantizeCheckpoint(checkpoint, config);
  using adapter = lora === undefined ? undefined : await Adapter.open(lora);
  if (adapter) mergeAdapter(checkpoint, adapter);
  const converted = convertModel(config, checkpoint, quantize, await readRanker(folder, config));
  const modules = await readTextModules(folder, converted);
  using opened = new DisposableStack();
  const tensors = [...converted.tensors];
  for (const [i, { folder, inputs, outputs }] of modules.dense.entries()) {
    const weights = opened.use(await Checkpoint.open(folder));
    const list = new TensorList(weights, new WeightFinder(weights, config), quantize);
    list.matrix(denseName(i), "linear", outputs, inputs);
    tensors.push(...list.tensors);
  }
  const model = { ...converted, tensors };
  if (quantize?.weights?.used.size === 0) {
    throw new ConvertError(
      `The importance matrix ${options.importance} names no quantized matrix of this model`,
    );
  }
  const entries = [
    ...model.entries,
    ...fileEntries(folder, model.tensors),
    ...modules.entries,
    ...await readTokenizer(folder, model),
  ];
  const report = await write(options, { ...model, entries }, refusalOf, threads);
  return { ...report, weighed: quantize?.weights?.used.size };
}

/** Converts the vision tower of a checkpoint into an `mmproj` file. Throws like `convertCheckpoint`. */
export async function convertVision(options: ConvertOptions): Promise<ConvertReport> {
  const { folder, quantize } = options;
  const config = Fields.of(...await requireJson(join(folder, "config.json"), MAX_CONFIG_BYTES));
  using checkpoint = await Checkpoint.open(folder);
  dequantizeCheckpoint(checkpoint, config);
  using threads = threadsOf(options);
  const tower = await convertTower(config, checkpoint, quantize && { to: quantize, threads });
  const entries = [...tower.entries, ...fileEntries(folder, tower.tensors)];
  return await write(options, { ...tower, entries }, towerRefusalOf, threads);
}

/** Writes the file, reads it back and compares it. */
async function write(
  options: ConvertOptions,
  { architecture, entries, tensors, leftOut }: Pick<
    ConvertedModel,
    "architecture" | "entries" | "tensors" | "leftOut"
  >,
  refusal: (file: GgufFile) => Promise<string | undefined>,
  { count }: QuantizerThreads,
): Promise<ConvertReport> {
  const { out, quantize, signal } = options;
  // One more chunk than threads, so a thread that finishes a task finds the next one.
  const ahead = quantize === undefined || count === 1 ? 0 : count + 1;
  using partial = await PartialFile.create(out);
  try {
    const progress = stage(options, "write");
    const checksums = await writeGguf(partial.file, entries, tensors, { progress, signal, ahead });
    await partial.file.sync();
    const file = await verify(partial.path, tensors, checksums, stage(options, "verify"), signal);
    const reason = await refusal(file);
    await partial.complete();
    return {
      path: out,
      fileBytes: file.fileSize,
      architecture,
      tensors: tensors.map(({ name, type, shape, source, error }) => {
        return { name, type, shape, source, error: error?.() };
      }),
      leftOut,
      refusal: reason,
    };
  } catch (error) {
    await partial.discard();
    throw error;
  }
}

function threadsOf({ threads = navigator.hardwareConcurrency }: ConvertOptions): QuantizerThreads {
  return new QuantizerThreads(threads);
}

async function quantizationOf(
  { quantize, importance }: ConvertOptions,
  threads: QuantizerThreads,
): Promise<Quantization | undefined> {
  if (quantize === undefined) return undefined;
  if (importance === undefined) return { to: quantize, threads };
  if (weighs(quantize)) return { to: quantize, threads, weights: await ColumnWeights.read(importance) };
  const advice = [{ quantize: "q4_k" }, " or another of the *_k, iq* and tq* formats"];
  throw new ConvertError([`The format ${quantize} does not use an importance matrix: choose `, ...advice]);
}

function stage({ progress }: ConvertOptions, name: "write" | "verify"): Progress {
  return (done, total) => progress?.(name, done, total);
}

function fileEntries(folder: string, tensors: readonly OutputTensor[]): Entry[] {
  const entries = [entry("general.name", "STRING", basename(resolve(folder)))];
  const quantised = tensors.some(({ type }) => !["F32", "F16", "BF16"].includes(type));
  if (quantised) entries.push(entry("general.quantization_version", "UINT32", QUANTIZATION_VERSION));
  return entries;
}

async function readTokenizer(
  folder: string,
  { vocabulary, architecture }: ConvertedModel,
): Promise<Entry[]> {
  const tokenizer = Fields.of(...await requireJson(join(folder, "tokenizer.json"), MAX_TOKENIZER_BYTES));
  const path = join(folder, "tokenizer_config.json");
  const config = Fields.of(path, await readJson(path, MAX_CONFIG_BYTES) ?? {});
  const entries = tokenizerEntries(tokenizer, config, vocabulary, architecture);
  const generationPath = join(folder, "generation_config.json");
  const generation = Fields.of(generationPath, await readJson(generationPath, MAX_CONFIG_BYTES) ?? {});
  return [
    ...entries,
    ...endEntries(generation, entries),
    ...await chatTemplateEntries(folder, config),
  ];
}

async function requireJson(path: string, maxBytes: number): Promise<[path: string, json: unknown]> {
  const json = await readJson(path, maxBytes);
  if (json === undefined) throw new ConvertError(`Cannot find ${path}: a checkpoint must have this file`);
  return [path, json];
}
