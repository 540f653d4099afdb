/** Cases of the parity test, with the exact answers that `deno task parity` generated. */

import { GPU_TYPES, isGpuType } from "../../engine/backend/webgpu/kernels/formats/registry.ts";
import { FORMATS as TENSOR_FORMATS } from "../../engine/gguf/formats.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { SYNTH_MODELS } from "../../testing/synth/registry.ts";
import { type Architecture, synthesize, type SynthOptions } from "../../testing/synth/synth.ts";

/** Architectures that are tested in every format. */
const WHOLE: readonly Architecture[] = ["llama", "qwen2", "qwen3", "qwen3moe", "qwen35"];
/** The other decoders, tested in fewer formats with longer prompts. */
export const DECODERS: readonly Architecture[] = (Object.keys(SYNTH_MODELS) as Architecture[])
  .filter((name) => !WHOLE.includes(name) && !SYNTH_MODELS[name].encoder);
/** Number of most probable tokens that each step compares. */
export const TOP = 20;

const TYPES: readonly TensorType[] = GPU_TYPES;
/** Strides that visit every type before they repeat one. */
const STRIDES = TYPES.map((_, stride) => stride).filter((stride) => gcd(stride, TYPES.length) === 1);
/** CPU-only formats, tested on dense models. */
export const CPU_FORMATS: readonly string[] = Object.keys(TENSOR_FORMATS)
  .filter((type) => !isGpuType(type as TensorType));
/** A format, or "MIXED": neighbouring matrices have different formats. */
export const FORMATS: readonly string[] = [...TYPES, "MIXED"];

/** A model file of the parity test. */
export interface ParityFile {
  /** The file's key in the table of exact answers. */
  readonly name: string;
  readonly format: string;
  readonly options: SynthOptions;
  /** Tokens of the prompts. */
  readonly prompts: readonly number[];
  /** Greedy tokens after each prompt. */
  readonly steps: number;
  /** Whether answers are also compared with the pass that rounds keys and values like the cache. */
  readonly rounded?: boolean;
}

const files = (
  architecture: Architecture,
  format: string,
  seeds: readonly number[],
  rest: Pick<ParityFile, "prompts" | "steps" | "rounded">,
): ParityFile[] =>
  seeds.map((seed) => ({
    name: `${architecture}-${format}-${seed}`,
    format,
    options: { architecture, seed, types: format === "MIXED" ? mixed(seed) : [format as TensorType] },
    ...rest,
  }));

/** Formats, besides F32, that the remaining decoders are tested with. */
export const BLOCK_FORMATS: readonly string[] = ["Q8_0", "Q4_0", "Q4_K", "MXFP4"];
const LONG = { prompts: [1, 9, 70, 500], steps: 8 };

/**
 * Rounding can turn a near tie between experts or expert groups, which changes these answers more than all other
 * rounding. With two seeds that is chance, for compy and for llama.cpp (which differs as much between two processors).
 * Twelve seeds average it out.
 */
function blockSeeds(name: Architecture): readonly number[] {
  const isMoved = ["gemma4_moe", "bailingmoe2", "afmoe"].includes(name);
  return Array.from({ length: isMoved ? 12 : 2 }, (_, i) => i + 1);
}

const WHOLE_CASES = { prompts: [1, 8, 200], steps: 16 };
/**
 * A hybrid's largest distance comes from one prompt with changed recurrent states. Whether six prompts include such a
 * prompt is chance; twelve prompts are more reliable.
 */
const wholeSeeds = (name: Architecture) => name === "qwen35" ? [1, 2, 3, 4] : [1, 2];
const WHOLE_FILES: readonly ParityFile[] = FORMATS.flatMap((format) =>
  WHOLE.flatMap((name) => files(name, format, wholeSeeds(name), WHOLE_CASES))
);
const OTHER_FILES: readonly ParityFile[] = DECODERS.flatMap((name) => [
  ...files(name, "F32", [1, 2, 3], { ...LONG, rounded: true }),
  ...BLOCK_FORMATS.flatMap((format) => files(name, format, blockSeeds(name), LONG)),
]);
const CPU_FILES: readonly ParityFile[] = CPU_FORMATS.flatMap((format) =>
  (["llama", "qwen2", "qwen3"] as const).flatMap((name) => files(name, format, [1], WHOLE_CASES))
);
export const PARITY_FILES: readonly ParityFile[] = [...WHOLE_FILES, ...CPU_FILES, ...OTHER_FILES];

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}

/** Returns all types in an order that depends on the seed, so that different types meet in one op. */
function mixed(seed: number): TensorType[] {
  const stride = STRIDES[seed % STRIDES.length];
  return TYPES.map((_, i) => TYPES[i * stride % TYPES.length]);
}

/** The prompt of `length` tokens. */
export function prompt(length: number): number[] {
  return Array.from({ length }, (_, i) => (i * 37 + length) % 200 + 33);
}

/** One step of a greedy generation: the most likely tokens in order; the first is the greedy choice. */
export interface ExactStep {
  readonly ids: readonly number[]; // [TOP]
  readonly logprobs: readonly number[]; // [TOP]
  /** Log-probabilities of the same ids, with keys and values rounded like the CPU's cache. */
  readonly rounded?: readonly number[]; // [TOP]
}

/** The exact answer to one prompt, and llama.cpp's distance from it on the same tokens. */
export interface ExactCase {
  readonly steps: readonly ExactStep[]; // one each of the file's steps
  readonly llamaCpp: Distance;
}

/** Absolute distances of log-probabilities. */
export interface Distance {
  readonly max: number;
  readonly mean: number;
}

/** The stored form of the table: a step is "id gap id gap …", each gap in 10^-4 below the log-probability before it. */
export interface ParityTable {
  readonly files: Readonly<Record<string, FileAnswers>>;
}

export interface FileAnswers {
  /** First 16 hexadecimal digits of the file's SHA-256. */
  readonly sha256: string;
  /** Exact cases by prompt length. */
  readonly cases: Readonly<
    Record<
      string,
      { readonly steps: readonly string[]; readonly rounded?: readonly string[]; readonly llamaCpp: Distance }
    >
  >;
}

const UNIT = 1e4;

export function packStep(step: ExactStep): string {
  let above = 0;
  return step.ids.flatMap((id, i) => {
    const units = Math.round(-step.logprobs[i] * UNIT);
    const gap = units - above;
    above = units;
    return [id, gap];
  }).join(" ");
}

export function unpackStep(text: string): ExactStep {
  const numbers = text.split(" ").map(Number);
  let units = 0;
  const ids = numbers.filter((_, i) => i % 2 === 0);
  const logprobs = numbers.filter((_, i) => i % 2 === 1).map((gap) => -(units += gap) / UNIT);
  return { ids, logprobs };
}

/** Returns the URL of an architecture's table. */
export function tableUrl(architecture: Architecture): URL {
  return new URL(`parity/${architecture}.json`, import.meta.url);
}

export async function readTable(architecture: Architecture): Promise<ParityTable> {
  return JSON.parse(await Deno.readTextFile(tableUrl(architecture)));
}

/** The exact answers to a file's prompts, by prompt length. Throws if the table does not have the file's digest. */
export async function exactCases(table: ParityTable, file: ParityFile, bytes: Uint8Array<ArrayBuffer>) {
  const answers = table.files[file.name];
  const found = await digest(bytes);
  if (answers?.sha256 !== found) {
    const known = answers ? `of ${answers.sha256}` : "nothing";
    throw new Error(
      `Cannot judge ${file.name}: its SHA-256 is ${found}, the table knows ${known}. Run \`deno task parity ${file.options.architecture}\``,
    );
  }
  return new Map(file.prompts.map((length): [number, ExactCase] => {
    const { steps, rounded, llamaCpp } = answers.cases[length];
    const unpacked = steps.map((text, i) => {
      return { ...unpackStep(text), rounded: rounded && unpackStep(rounded[i]).logprobs };
    });
    return [length, { steps: unpacked, llamaCpp }];
  }));
}

/** Returns the first 16 hexadecimal digits of the bytes' SHA-256. */
export async function digest(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes), 0, 8).toHex();
}

/** The bytes of a parity file. */
export function parityBytes(file: ParityFile): Uint8Array<ArrayBuffer> {
  return synthesize(file.options);
}
