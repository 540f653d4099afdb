import { assert, assertEquals } from "@std/assert";
import { busiest, KERNELS, paperRows, tapering } from "./threads_on_paper.ts";
import { buildPlan } from "../engine/architectures/registry.ts";
import { MetadataMap } from "../engine/gguf/metadata.ts";
import { byteLengthOf } from "../engine/gguf/tensor_types.ts";
import type { GgufFile, MetadataValue, TensorInfo, TensorType } from "../engine/gguf/types.ts";
import { SynthFile } from "../testing/synth/file.ts";
import type { DecoderShape } from "../testing/synth/decoder.ts";
import { SYNTH_MODELS } from "../testing/synth/registry.ts";
import { describeTokens } from "../testing/synth/tokens.ts";

const SMALL = SYNTH_MODELS.qwen3.real!["qwen3-0.6b"] as DecoderShape;
/** The shape of Qwen3-8B. */
const LARGE: DecoderShape = {
  ...SMALL,
  embedding: 4096,
  feedForward: 12_288,
  layers: 36,
  heads: 32,
  kvHeads: 8,
  headDim: 128,
};

/** Returns the header of a model file, without weights. */
function header(shape: DecoderShape, type: TensorType): GgufFile {
  const entries = new Map<string, MetadataValue>();
  const tensors = new Map<string, TensorInfo>();
  const sink: SynthFile["sink"] = {
    set: (key, _type, value) => void entries.set(key, value),
    array: (key, _type, values) => void entries.set(key, Array.from(values) as MetadataValue),
    tensor: (name, type, shape) => {
      const byteLength = byteLengthOf(type, shape.reduce((a, b) => a * b));
      tensors.set(name, { name, type, shape, offset: 0, byteLength } as TensorInfo);
    },
  };
  const file = new SynthFile(sink, "qwen3", { seed: "header", typeOf: () => type });
  entries.set("general.architecture", "qwen3");
  SYNTH_MODELS.qwen3.write(file, shape);
  describeTokens(file, shape.vocabulary);
  const paths = ["header.gguf"];
  return { metadata: new MetadataMap(entries), tensors, integers: new Map(), paths } as unknown as GgufFile;
}

Deno.test("estimated threads: portions of work get shorter as in the kernels, and go to the thread that is free first", () => {
  assertEquals(tapering(12, [1, Infinity], 2), [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
  assertEquals(tapering(3072, [96, 288], 2).slice(0, 3), [288, 288, 288]);
  assertEquals(tapering(100, [32, 288], 16), [32, 32, 32, 4]);
  assertEquals(busiest([4, 1, 1, 1, 1], 2), 4);
  assertEquals(busiest([1, 1, 1, 1, 4], 2), 6);
});

Deno.test("estimated threads: the estimate's constants equal those in the kernels' sources", async () => {
  const source = async (path: string) =>
    await Deno.readTextFile(new URL(`../rust-kernels/src/${path}`, import.meta.url));
  const expected: [string, string, number][] = [
    ["pool.rs", "RUNS_PER_THREAD", KERNELS.runsPerThread],
    ["executor/work.rs", "ITEMS_PER_THREAD", KERNELS.itemsPerThread],
    ["simd/avx512.rs", "LANES", KERNELS.lanes],
    ["simd/avx512.rs", "PANELS", KERNELS.panels],
    ["simd/avx512.rs", "FLOAT_PANELS", KERNELS.floatPanels],
    ["kernels/float_gemm.rs", "WIDE_TOKENS", KERNELS.floatWideTokens],
    ["kernels/float_gemm.rs", "TILE_TOKENS", KERNELS.floatTileTokens],
    ["kernels/float_gemm.rs", "THIN_PANELS", KERNELS.thinPanels],
    ["kernels/tiles.rs", "MOST_PANELS", KERNELS.mostPanels],
    ["kernels/kv/mod.rs", "MAX_ROWS", KERNELS.attentionRows],
    ["ops/attention/mod.rs", "EACH", KERNELS.headsTogether],
    ["ops/glu.rs", "COLUMNS", KERNELS.gluColumns],
    ["kernels/tiles.rs", "RUNS", KERNELS.runs],
    ["kernels/tiles.rs", "CUT_ROWS", KERNELS.cutRows],
    ["ops/candidates/survey.rs", "PART", KERNELS.surveyed],
  ];
  for (const [path, name, value] of expected) {
    const found = (await source(path)).match(new RegExp(`const ${name}: usize = (\\d+);`))?.[1];
    assertEquals(found, `${value}`, `${name} in ${path}`);
  }
});

/** Minimum parallel efficiency in percent, by threads: decode of one sequence, of sixteen, and prefill. */
const REACHED: Readonly<Record<string, Readonly<Record<number, readonly [number, number, number]>>>> = {
  "0.6B": { 8: [95, 97, 96], 16: [88, 94, 92], 32: [74, 82, 92], 64: [49, 58, 85] },
  "8B": { 8: [99, 99, 98], 16: [98, 98, 96], 32: [95, 95, 96], 64: [89, 89, 91] },
};

for (const [name, shape] of Object.entries({ "0.6B": SMALL, "8B": LARGE })) {
  Deno.test(`estimated threads: ${name}'s parallel efficiency does not fall below the recorded values`, () => {
    for (const [threads, reached] of Object.entries(REACHED[name])) {
      const found = paperRows(buildPlan(header(shape, "Q8_0")), [Number(threads)]);
      found.forEach(({ work, linear }, i) => {
        assert(linear >= reached[i] / 100, `${work}, ${threads} threads: ${linear.toFixed(3)} of linear`);
      });
    }
  });
}
