import { assertEquals } from "@std/assert";
import { header } from "../../convert/write/gguf_writer.ts";
import type { Entry } from "../../convert/write/metadata.ts";
import type { OutputTensor } from "../../convert/write/output_tensor.ts";
import { memorySource } from "../../engine/gguf/byte_source.ts";
import { byteLengthOf, layoutOf } from "../../engine/gguf/tensor_types.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { inspectModel } from "../../engine/load/inspect.ts";
import { type Sink, SynthFile } from "../../testing/synth/file.ts";
import { type Architecture, SYNTH_MODELS } from "../../testing/synth/registry.ts";

/*
 * Headers of the newest published files: keys and a list of tensors, without weights and vocabularies. The shapes and the
 * numbers of tensors are those that llama.cpp's loader prints for the published files.
 */

interface Header {
  /** The seeded family whose names and keys the file has. */
  readonly family: Architecture;
  /** Shape of a published model of that family, and what differs here. */
  readonly like?: string;
  readonly shape?: Readonly<Record<string, unknown>>;
  /** Type of all matrices except experts, and type of experts. */
  readonly type: TensorType;
  readonly experts?: TensorType;
  /** Keys to add or replace, as in the published file. Names lack the architecture's prefix. */
  readonly keys?: Readonly<Record<string, number | readonly number[]>>;
  /** Whether each expert's gate and up are one matrix. */
  readonly fused?: boolean;
  /** Number of tensors that the published file has; undefined where no listing names it. */
  readonly tensors?: number;
  readonly runs: Runs | { readonly refusal: string };
}

interface Runs {
  readonly layers: readonly string[];
  /** Gigabytes of packed weights, and of the weights that a token reads. */
  readonly gigabytes: number;
  readonly perToken: number;
}

const QWEN = {
  embedding: 5120,
  feedForward: 17_408,
  layers: 64,
  heads: 24,
  kvHeads: 4,
  untied: true,
  delta: { keyHeads: 16, valueHeads: 48, headDim: 128 },
  drafts: 1,
};
/** Keys of the vision tower that some converters leave in a text file. */
const VISION = { "vision.block_count": 27, "vision.embedding_length": 1152, "vision.patch_size": 16 };
const GEMMA = {
  context: 262_144,
  period: 6,
  window: 1024,
  shared: 0,
  perLayer: 0,
  keysAsValues: true,
  experts: undefined,
};
const gemmaHeads = (full: number, sliding: number) => ({
  full: { kvHeads: full, headDim: 512, ropeBase: 1e6 },
  sliding: { kvHeads: sliding, headDim: 256, ropeBase: 1e4 },
});

const HEADERS: Readonly<Record<string, Header>> = {
  "Qwen3.8-27B, 65 blocks of which one drafts": {
    family: "qwen35",
    like: "qwen3.5-4b",
    shape: QWEN,
    type: "Q4_K",
    tensors: 866,
    runs: {
      layers: ["48 of Gated DeltaNet", "16 of attention", "1 of attention, drafts"],
      gigabytes: 16.0,
      perToken: 14.8,
    },
  },
  "Qwen3.5-9B with a drafting layer": {
    family: "qwen35",
    like: "qwen3.5-4b",
    shape: { embedding: 4096, feedForward: 12_288, layers: 32, untied: true, drafts: 1 },
    type: "Q8_0",
    tensors: 442,
    runs: {
      layers: ["24 of Gated DeltaNet", "8 of attention", "1 of attention, drafts"],
      gigabytes: 10.0,
      perToken: 8.5,
    },
  },
  "Qwen3.8-27B with vision keys": {
    family: "qwen35",
    like: "qwen3.5-4b",
    shape: QWEN,
    type: "Q4_K",
    tensors: 866,
    keys: VISION,
    runs: {
      layers: ["48 of Gated DeltaNet", "16 of attention", "1 of attention, drafts"],
      gigabytes: 16.0,
      perToken: 14.8,
    },
  },
  "Nemotron 3.5 Lightning, 53 blocks of which one drafts": {
    family: "nemotron_h_moe",
    like: "nemotron-3-nano-30b-a3b",
    shape: { context: 1 << 20, drafts: 1 },
    type: "Q8_0",
    experts: "Q5_0",
    runs: {
      layers: [
        "23 of Mamba2",
        "23 of 6 of 128 experts",
        "6 of attention",
        "1 of attention, 6 of 128 experts, drafts",
      ],
      gigabytes: 23.6,
      perToken: 3.0,
    },
  },
  // llama.cpp's issue 27718 reports this file. A converter had written zeros for all layers.
  "Nemotron 3.5 Lightning without KV heads": {
    family: "nemotron_h_moe",
    like: "nemotron-3-nano-30b-a3b",
    shape: { context: 1 << 20 },
    type: "Q4_0",
    keys: { "attention.head_count_kv": new Array(52).fill(0) },
    runs: { refusal: 'GGUF_HPARAM tensor "blk.5.ssm_in.weight": missing; must have shape 2688 x 10304' },
  },
  "Nemotron 3 Super with a drafting layer": {
    family: "nemotron_h_moe",
    like: "nemotron-3-nano-30b-a3b",
    shape: {
      embedding: 4096,
      feedForward: 2688,
      layers: 88,
      mamba: { heads: 128, headDim: 64, groups: 8, stateSize: 128 },
      pattern: "MEMEMEM*EME".repeat(8),
      experts: { count: 512, used: 22, feedForward: 2688, shared: 5376, scale: 5, latent: 1024 },
      drafts: 1,
    },
    type: "Q8_0",
    experts: "Q5_0",
    tensors: 781,
    runs: {
      layers: [
        "40 of Mamba2",
        "40 of 22 of 512 experts",
        "8 of attention",
        "1 of attention, 22 of 512 experts, drafts",
      ],
      gigabytes: 88.4,
      perToken: 11.5,
    },
  },
  "Gemma 4 E2B": {
    family: "gemma4",
    like: "gemma4-e2b",
    shape: { keysAsValues: false, unreadKeys: true },
    type: "Q4_K",
    tensors: 601,
    runs: {
      layers: ["28 of attention to 512 tokens", "7 of attention"],
      gigabytes: 2.7,
      perToken: 1.3,
    },
  },
  "Gemma 4 E4B": {
    family: "gemma4",
    like: "gemma4-e2b",
    shape: {
      embedding: 2560,
      feedForward: 10_240,
      layers: 42,
      period: 6,
      shared: 18,
      ...gemmaHeads(2, 2),
      keysAsValues: false,
      unreadKeys: true,
    },
    type: "Q4_K",
    tensors: 720,
    runs: {
      layers: ["35 of attention to 512 tokens", "7 of attention"],
      gigabytes: 5.1,
      perToken: 3.5,
    },
  },
  "Gemma 4 12B": {
    family: "gemma4",
    like: "gemma4-e2b",
    shape: { ...GEMMA, embedding: 3840, feedForward: 15_360, layers: 48, heads: 16, ...gemmaHeads(1, 8) },
    type: "Q4_K",
    runs: {
      layers: ["40 of attention to 1024 tokens", "8 of attention"],
      gigabytes: 6.9,
      perToken: 6.9,
    },
  },
  "Gemma 4 26B-A4B": {
    family: "gemma4_moe",
    like: "gemma4-26b-a4b",
    type: "Q8_0",
    experts: "Q4_K",
    fused: true,
    tensors: 658,
    runs: {
      layers: ["25 of attention to 1024 tokens, 8 of 128 experts", "5 of attention, 8 of 128 experts"],
      gigabytes: 19.5,
      perToken: 3.6,
    },
  },
  "Gemma 4 31B": {
    family: "gemma4",
    like: "gemma4-e2b",
    shape: { ...GEMMA, embedding: 5376, feedForward: 21_504, layers: 60, heads: 32, ...gemmaHeads(4, 16) },
    type: "Q4_K",
    tensors: 833,
    runs: {
      layers: ["50 of attention to 1024 tokens", "10 of attention"],
      gigabytes: 17.8,
      perToken: 17.8,
    },
  },
  "gpt-oss 20B with MXFP4": {
    family: "gpt-oss",
    like: "gpt-oss-20b",
    type: "Q8_0",
    experts: "MXFP4",
    tensors: 459,
    runs: {
      layers: ["12 of attention to 128 tokens, 4 of 32 experts", "12 of attention, 4 of 32 experts"],
      gigabytes: 12.1,
      perToken: 2.6,
    },
  },
  "gpt-oss 20B without MXFP4": {
    family: "gpt-oss",
    like: "gpt-oss-20b",
    type: "F16",
    tensors: 459,
    runs: {
      layers: ["12 of attention to 128 tokens, 4 of 32 experts", "12 of attention, 4 of 32 experts"],
      gigabytes: 41.8,
      perToken: 7.2,
    },
  },
};

/** Collects keys and tensors without computing weights. A later value of a key replaces an earlier value. */
class Listing implements Sink {
  readonly entries = new Map<string, Entry>();
  readonly tensors: OutputTensor[] = [];

  constructor(private readonly fused: boolean) {}

  set(key: string, type: Entry["type"], value: number | boolean | string): void {
    this.entries.set(key, { key, type, value });
  }

  array(key: string, type: Entry["type"], values: ArrayLike<number | boolean | string>): void {
    this.entries.set(key, { key, type, value: Array.from(values) });
  }

  tensor(name: string, type: TensorType, shape: readonly number[]): void {
    if (this.fused && name.includes("ffn_up_exps")) return;
    const isFused = this.fused && name.includes("ffn_gate_exps");
    const whole = isFused ? [shape[0], 2 * shape[1], shape[2]] : shape;
    this.tensors.push({
      name: isFused ? name.replace("gate_exps", "gate_up_exps") : name,
      type,
      shape: whole,
      byteLength: byteLengthOf(type, whole.reduce((product, n) => product * n)),
      source: type,
      chunks: () => [],
    });
  }
}

/** The bytes of the float 1. */
const ONE = new Uint8Array(Float32Array.of(1).buffer);

/** Returns the file's keys and tensors, and a source that has as many bytes as the file but only its header. */
function listingOf({ family, like, shape, type, experts = type, keys = {}, fused = false }: Header) {
  const model = SYNTH_MODELS[family];
  const listing = new Listing(fused);
  const typeOf = (_: number, _name: string, [columns, , count]: readonly number[]) =>
    [count === undefined ? type : experts, "Q8_0" as const, "F16" as const].find((type) =>
      columns % layoutOf(type).elements === 0
    )!;
  const file = new SynthFile(listing, model.architecture ?? family, { seed: "", typeOf });
  listing.set("general.architecture", "STRING", file.architecture);
  const whole = { ...model.tiny, ...like === undefined ? {} : model.real![like], ...shape };
  model.write(file, whole);
  for (const [key, value] of Object.entries(keys)) {
    if (typeof value === "number") file.key(key, "UINT32", value);
    else file.keys(key, "UINT32", value);
  }
  const head = header([...listing.entries.values()], listing.tensors);
  const aligned = (bytes: number) => Math.ceil(bytes / 32) * 32;
  const size = listing.tensors.reduce((sum, { byteLength }) => sum + aligned(byteLength), head.length);
  const known = memorySource(head);
  const readSync = (offset: number, into: Uint8Array<ArrayBuffer>) => {
    if (offset < head.length) return known.readSync!(offset, into);
    // Plans read rotary factors. All of them are 1.
    for (let i = 0; i < into.length; i++) into[i] = ONE[(offset + i) % 4];
    return into.length;
  };
  const read = (offset: number, into: Uint8Array<ArrayBuffer>) => Promise.resolve(readSync(offset, into));
  return { listing, open: () => Promise.resolve({ ...known, size, read, readSync }) };
}

for (const [name, published] of Object.entries(HEADERS)) {
  Deno.test(`published headers: inspect describes ${name}`, async () => {
    const { listing, open } = listingOf(published);
    if (published.tensors !== undefined) assertEquals(listing.tensors.length, published.tensors);
    const options = { model: "model.gguf", open, contextLength: 4096, parallel: 1 };
    const { plan } = await inspectModel(options);
    if ("refusal" in plan) return assertEquals({ refusal: plan.refusal }, published.runs);
    const rounded = (bytes: number) => Math.round(bytes / 1e8) / 10;
    assertEquals({
      layers: plan.layers.map(({ kind, count }) => `${count} of ${kind}`),
      gigabytes: rounded(plan.memory.weights),
      perToken: rounded(plan.tokenWeights),
    }, published.runs);
  });
}
