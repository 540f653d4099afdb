/**
 * Per-head matrices on the kernels: against float64, with columns that are kept beside the products and columns that
 * are dropped.
 */
import { assert } from "@std/assert";
import { GgufBuilder } from "../../engine/gguf/testing.ts";
import type { GgufFile, TensorType } from "../../engine/gguf/types.ts";
import { PlanBuilder } from "../../engine/plan/builder.ts";
import { finishPlan } from "../../engine/plan/finish.ts";
import { candidates } from "../../engine/plan/ops/candidates.ts";
import { embed } from "../../engine/plan/ops/embed.ts";
import { headMatmul } from "../../engine/plan/ops/head_matmul.ts";
import { rmsNorm } from "../../engine/plan/ops/rms_norm.ts";
import type { Plan } from "../../engine/plan/plan.ts";
import { instructionSets, KernelModel, shuffledBlocks, type Wanted } from "../../testing/kernel_model.ts";
import { Random, seedOf } from "../../testing/random.ts";
import { dequantize, weights } from "../../testing/synth/weights.ts";
import { multiply } from "./exact_activations.ts";

const VOCABULARY = 96;
const EPSILON = 2 ** -20;
const HEADS = 3;
/** Columns of a head: multiplied ones, ones kept before the products, and outputs of the second matrices. */
const [COLUMNS, REST, INNER, OUTER] = [64, 32, 96, 80];
/** Source of the logits: the first products, each head's after its kept columns, or the second products. */
type Stage = "kept" | "left out";
const WIDTH = { kept: HEADS * (REST + INNER), "left out": HEADS * OUTER };

/** A file, and its values by name. */
function fileOf(type: TensorType, stage: Stage) {
  const builder = new GgufBuilder().set("general.architecture", "STRING", "heads");
  const values = new Map<string, Float32Array>();
  const add = (name: string, type: TensorType, shape: number[]) => {
    const length = shape.reduce((a, b) => a * b);
    const random = new Random(seedOf(`heads ${name}`));
    const made = type === "F32"
      ? Float32Array.from({ length }, () => random.normal())
      : weights(type, length, random);
    builder.tensor(`${name}.weight`, type, shape, made);
    const bytes = new Uint8Array(made.buffer, made.byteOffset, made.byteLength);
    values.set(name, Float32Array.from(dequantize(type, bytes, length)));
  };
  add("token_embd", "F32", [HEADS * (COLUMNS + REST), VOCABULARY]);
  add("first", type, [COLUMNS, INNER, HEADS]);
  if (stage === "left out") add("second", type, [INNER, OUTER, HEADS]);
  add("output_norm", "F32", [WIDTH[stage]]);
  add("output", "F32", [WIDTH[stage], VOCABULARY]);
  return { bytes: builder.build().bytes, values };
}

const planOf = (stage: Stage, fine: boolean) => (file: GgufFile): Plan => {
  const b = new PlanBuilder(file, { fine });
  const x = embed(b, "token_embd", VOCABULARY, HEADS * (COLUMNS + REST));
  const first = headMatmul(b, x, {
    weight: "first.weight",
    heads: HEADS,
    rows: INNER,
    rest: REST,
    keeps: true,
  });
  const second = () =>
    headMatmul(b, first, { weight: "second.weight", heads: HEADS, rows: OUTER, rest: REST, keeps: false });
  const last = stage === "kept" ? first : second();
  candidates(b, rmsNorm(b, last, "output_norm", EPSILON, "logits"), VOCABULARY);
  return finishPlan(b, { architecture: "heads", vocabSize: VOCABULARY, contextLength: 512 });
};

/** Returns the logits after a token, computed in float64. */
function exact(values: ReadonlyMap<string, Float32Array>, stage: Stage, token: number): number[] {
  const get = (name: string) => values.get(name)!;
  const heads = (x: readonly number[], each: (head: readonly number[], i: number) => readonly number[]) =>
    Array.from(
      { length: HEADS },
      (_, i) => each(x.slice(i * x.length / HEADS, (i + 1) * x.length / HEADS), i),
    ).flat();
  const own = (name: string, i: number) => {
    const all = get(name);
    return all.subarray(i * all.length / HEADS, (i + 1) * all.length / HEADS);
  };
  const width = HEADS * (COLUMNS + REST);
  const x = [...get("token_embd").subarray(token * width, (token + 1) * width)];
  const first = heads(
    x,
    (head, i) => [...head.slice(COLUMNS), ...multiply(own("first", i), head.slice(0, COLUMNS))],
  );
  const last = stage === "kept"
    ? first
    : heads(first, (head, i) => multiply(own("second", i), head.slice(REST)));
  const mean = last.reduce((sum, v) => sum + v * v, 0) / last.length;
  return multiply(get("output"), last.map((v, i) => v / Math.sqrt(mean + EPSILON) * get("output_norm")[i]));
}

const SIZE = { kvBlocks: 160, maxRows: 256, maxLogitRows: 256 };
const EVERY = Array.from({ length: VOCABULARY }, (_, i) => i);

/** The largest difference of a logit from float64, over all rows; logits reach about 60. */
async function furthest(model: KernelModel, rows: number, exactly: readonly number[][]): Promise<number> {
  const tokens = Array.from({ length: rows }, (_, i) => (i * 37 + rows) % VOCABULARY);
  const wanted = tokens.map((): Wanted => ({ candidates: 1, probe: EVERY }));
  const [answers] = await model.step([{ tokens, blockTable: shuffledBlocks(0, 8), wanted }]);
  return Math.max(
    ...answers.flatMap(({ probed }, t) => [...probed].map((v, i) => Math.abs(v - exactly[tokens[t]][i]))),
  );
}

// Tolerances for activations in 8 bits and in 15.
for (
  const [type, fine, most] of [
    ["F32", false, 5e-4],
    ["BF16", false, 5e-4],
    ["Q8_0", false, 2],
    ["Q8_0", true, 2e-2],
    ["Q4_0", true, 2e-2],
  ] as const
) {
  for (const stage of ["kept", "left out"] as const) {
    const planes = fine ? ", in two planes" : "";
    Deno.test(`head_matmul in ${type}${planes}, rest ${stage}: logits match float64 on every instruction set`, async () => {
      const { bytes, values } = fileOf(type, stage);
      const exactly = EVERY.map((token) => exact(values, stage, token));
      for (const isa of instructionSets()) {
        for (const threads of [1, 3]) {
          using model = await KernelModel.loadAs(planOf(stage, fine), bytes, SIZE, { isa, threads });
          for (const rows of [1, 2, 7, 33, 64, 130]) {
            const error = await furthest(model, rows, exactly);
            assert(error < most, `${isa}, ${rows} rows on ${threads} threads: ${error}`);
          }
        }
      }
    });
  }
}
