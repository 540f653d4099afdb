/** Dense feed-forward blocks with every activation, with and without gates and biases: the kernels against float64. */
import { assert, assertThrows } from "@std/assert";
import { lower } from "../../engine/backend/webgpu/lowering.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { GgufBuilder } from "../../engine/gguf/testing.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { PlanBuilder } from "../../engine/plan/builder.ts";
import { finishPlan } from "../../engine/plan/finish.ts";
import { activated } from "../../engine/plan/ops/activated.ts";
import { candidates } from "../../engine/plan/ops/candidates.ts";
import { embed } from "../../engine/plan/ops/embed.ts";
import { glu } from "../../engine/plan/ops/glu.ts";
import { linear } from "../../engine/plan/ops/matmul.ts";
import { rmsNorm } from "../../engine/plan/ops/rms_norm.ts";
import { type Activation, ACTIVATIONS, type Plan } from "../../engine/plan/plan.ts";
import { exactActivation, exactGlu, multiply } from "./exact_activations.ts";
import { instructionSets, KernelModel, shuffledBlocks, type Wanted } from "../../testing/kernel_model.ts";
import { Random, seedOf } from "../../testing/random.ts";

const EMBEDDING = 64;
const VOCABULARY = 96;
const EPSILON = 2 ** -20;
/** Width of a feed-forward block: whole vectors, but not a multiple of the kernels' tiles. */
const FEED_FORWARD = 352;

/** A layer with only a feed-forward block. */
interface Layer {
  readonly activation: Activation;
  readonly gated: boolean;
  readonly biases: boolean;
  /** Whether gate and up share one tensor. */
  readonly fused?: boolean;
  /** Bound of the factors of a gated unit. */
  readonly limit?: number;
}

const halvesOf = ({ gated, fused }: Layer) => gated && !fused ? ["gate", "up"] : ["up"];

const LAYERS: readonly Layer[] = [
  ...ACTIVATIONS.flatMap((activation, i) => [
    { activation, gated: true, biases: i % 2 === 0, fused: i % 3 === 1 },
    ...activation === "swiglu_oai" ? [] : [{ activation, gated: false, biases: i % 2 === 1 }],
  ]),
  { activation: "silu", gated: true, biases: false, limit: 1.5 },
];

/** A file with F32 weights, and its values by name. */
function fileOf(layers: readonly Layer[]) {
  const builder = new GgufBuilder();
  const values = new Map<string, Float32Array>();
  const add = (name: string, shape: number[], mean: number, spread: number) => {
    const random = new Random(seedOf(`activations ${name}`));
    const length = shape.reduce((a, b) => a * b);
    const data = Float32Array.from({ length }, () => mean + spread * random.normal());
    builder.tensor(name, "F32", shape, data);
    values.set(name, data);
  };
  builder.set("general.architecture", "STRING", "activations");
  add("token_embd.weight", [EMBEDDING, VOCABULARY], 0, 1);
  add("output_norm.weight", [EMBEDDING], 2, 0.1);
  for (const [i, layer] of layers.entries()) {
    const width = layer.fused ? 2 * FEED_FORWARD : FEED_FORWARD;
    add(`blk.${i}.ffn_norm.weight`, [EMBEDDING], 1, 0.1);
    for (const half of halvesOf(layer)) {
      // Some products exceed gpt-oss's clamp.
      add(`blk.${i}.ffn_${half}.weight`, [EMBEDDING, width], 0, 3 / Math.sqrt(EMBEDDING));
      if (layer.biases) add(`blk.${i}.ffn_${half}.bias`, [width], 0, 1);
    }
    add(`blk.${i}.ffn_down.weight`, [FEED_FORWARD, EMBEDDING], 0, 0.2 / Math.sqrt(FEED_FORWARD));
  }
  return { bytes: builder.build().bytes, values };
}

const planOf = (layers: readonly Layer[]) => (file: GgufFile): Plan => {
  const b = new PlanBuilder(file);
  const x = embed(b, "token_embd", VOCABULARY, EMBEDDING);
  for (const [i, layer] of layers.entries()) {
    const { activation, gated } = layer;
    const name = (tensor: string) => `blk.${i}.${tensor}`;
    const [first, second = first] = halvesOf(layer).map((half) => name(`ffn_${half}`));
    const input = rmsNorm(b, x, name("ffn_norm"), EPSILON);
    const inner = gated || activation === "swiglu_oai"
      ? glu(b, input, first, second, FEED_FORWARD, activation, layer.limit)
      : activated(b, input, first, FEED_FORWARD, activation);
    linear(b, inner, [{ name: name("ffn_down"), rows: EMBEDDING, addTo: x }]);
  }
  candidates(b, rmsNorm(b, x, "output_norm", EPSILON, "logits"), VOCABULARY);
  return finishPlan(b, { architecture: "activations", vocabSize: VOCABULARY, contextLength: 512 });
};

/** Returns the logits after a token, computed in float64. */
function exact(values: ReadonlyMap<string, Float32Array>, layers: readonly Layer[], token: number): number[] {
  const embedding = values.get("token_embd.weight")!;
  let x = [...embedding.subarray(token * EMBEDDING, (token + 1) * EMBEDDING)];
  for (const [i, layer] of layers.entries()) {
    const { activation, gated } = layer;
    const get = (tensor: string) => values.get(`blk.${i}.${tensor}`);
    const h = norm(x, get("ffn_norm.weight")!);
    const product = (half: string, row: readonly number[]) => {
      const bias = get(`ffn_${half}.bias`);
      return multiply(get(`ffn_${half}.weight`)!, row).map((v, k) => v + (bias?.[k] ?? 0));
    };
    const products = halvesOf(layer).flatMap((half) => product(half, h));
    const inner = gated || activation === "swiglu_oai"
      ? products.slice(FEED_FORWARD).map((u, k) => exactGlu(activation, products[k], u, layer.limit))
      : products.map((v) => exactActivation(activation, v));
    const down = product("down", inner);
    x = x.map((v, k) => v + down[k]);
  }
  return multiply(embedding, norm(x, values.get("output_norm.weight")!));
}

function norm(row: readonly number[], weight: Float32Array): number[] {
  const mean = row.reduce((sum, v) => sum + v * v, 0) / row.length;
  return row.map((v, i) => v / Math.sqrt(mean + EPSILON) * weight[i]);
}

const EVERY = Array.from({ length: VOCABULARY }, (_, i) => i);

for (const layer of LAYERS) {
  const { activation, gated, biases } = layer;
  const name = `${activation}${gated ? " of a gate" : ""}${biases ? ", with biases" : ""}${
    layer.fused ? ", in one tensor" : ""
  }${layer.limit ? ", within bounds" : ""}`;
  Deno.test(`activations: ${name} matches float64 on every instruction set`, async () => {
    const { bytes, values } = fileOf([layer]);
    const exactly = EVERY.map((token) => exact(values, [layer], token));
    const plain = EVERY.map((token) => exact(values, [], token));
    for (const isa of instructionSets()) {
      const size = { kvBlocks: 8, maxRows: 140, maxLogitRows: 140 };
      using model = await KernelModel.loadAs(planOf([layer]), bytes, size, { isa, threads: 2 });
      for (const length of [1, 3, 140]) {
        const tokens = Array.from({ length }, (_, i) => (7 * i + length) % VOCABULARY);
        const wanted = tokens.map((): Wanted => ({ candidates: 1, probe: EVERY }));
        const [rows] = await model.step([{ tokens, blockTable: shuffledBlocks(0, 5), wanted }]);
        for (const [t, { probed }] of rows.entries()) {
          const off = Math.max(...probed.map((v, i) => Math.abs(v - exactly[tokens[t]][i])));
          assert(off < 2e-4, `${isa}, row ${t} of ${length}: off by ${off}`);
        }
      }
    }
    // The layer must matter: without it the answer would differ.
    assert(EVERY.some((token) => Math.abs(exactly[token][0] - plain[token][0]) > 0.05));
  });
}

Deno.test("activations: the GPU refuses unsupported activations, and the message names the op or activation", () => {
  const refusals = [
    [{ activation: "gelu", gated: true, biases: false }, `it has no "glu" with the activation "gelu"`],
    [{ activation: "silu", gated: true, biases: true }, `it has no "glu" with biases`],
    [{ activation: "silu", gated: true, biases: false, limit: 7 }, `it has no "glu" with bounds`],
    [{ activation: "silu", gated: true, biases: false, fused: true }, `it has no "glu" of one tensor`],
    [{ activation: "gelu", gated: false, biases: false }, `it has no "activated"`],
  ] as const;
  for (const [layer, message] of refusals) {
    const plan = planOf([layer])(parseGguf(fileOf([layer]).bytes));
    assertThrows(
      () => lower(plan),
      Error,
      `Cannot run this model on the GPU: ${message}; use backend: "cpu"`,
    );
  }
});
