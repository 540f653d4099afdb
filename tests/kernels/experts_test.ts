/** Experts on the kernels: against float64, and bit-identical in every batch and chunking. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { prepareBackend } from "../../engine/backend/choose.ts";
import { openGguf, parseGguf } from "../../engine/gguf/reader.ts";
import { GgufBuilder } from "../../engine/gguf/testing.ts";
import type { GgufFile, TensorType } from "../../engine/gguf/types.ts";
import { PlanBuilder } from "../../engine/plan/builder.ts";
import { finishPlan } from "../../engine/plan/finish.ts";
import { activeBytes, planCost } from "../../engine/plan/cost.ts";
import { candidates } from "../../engine/plan/ops/candidates.ts";
import { embed } from "../../engine/plan/ops/embed.ts";
import { expertSum } from "../../engine/plan/ops/expert_sum.ts";
import { expertActivated } from "../../engine/plan/ops/expert_activated.ts";
import { expertGlu } from "../../engine/plan/ops/expert_glu.ts";
import { linear } from "../../engine/plan/ops/matmul.ts";
import { rmsNorm } from "../../engine/plan/ops/rms_norm.ts";
import { route, type RouteOptions } from "../../engine/plan/ops/route.ts";
import type { Activation, Plan } from "../../engine/plan/plan.ts";
import { exactActivation, exactGlu, multiply } from "./exact_activations.ts";
import {
  instructionSets,
  KernelModel,
  type Run,
  shuffledBlocks,
  type Wanted,
} from "../../testing/kernel_model.ts";
import { Random, seedOf } from "../../testing/random.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

const EMBEDDING = 64;
const VOCABULARY = 96;
const EPSILON = 2 ** -20;

/** A layer with only a mixture of experts. Row counts are multiples of 16, but not of 32. */
interface Mixture extends RouteOptions {
  readonly count: number;
  readonly feedForward: number;
  readonly activation?: Activation;
  /** Bound of the factors of a gated unit. */
  readonly limit?: number;
  /** Whether each expert's matrices have biases. */
  readonly biases?: boolean;
  /** Whether gate and up share one tensor. */
  readonly fused?: boolean;
  /** Activation of experts without gates; undefined: experts have gates. */
  readonly ungated?: Exclude<Activation, "swiglu_oai">;
}
const LAYERS: readonly Mixture[] = [
  { count: 5, used: 2, feedForward: 48 },
  { count: 9, used: 4, feedForward: 80, sigmoid: true, bias: "blk.1.exp_probs_b.bias", scale: 2.5 },
  { count: 3, used: 3, feedForward: 16, sigmoid: true, limit: 0.5 },
  { count: 40, used: 1, feedForward: 32 },
  { count: 8, used: 3, feedForward: 48, scales: "blk.4.ffn_down_exps.scale" },
  { count: 6, used: 3, feedForward: 64, activation: "swiglu_oai", biases: true },
  { count: 4, used: 2, feedForward: 32, activation: "gelu", biases: true },
  { count: 7, used: 3, feedForward: 80, biases: true, fused: true },
  { count: 9, used: 4, feedForward: 48, ungated: "squared_relu", sigmoid: true, scale: 0.5, divided: false },
  { count: 5, used: 2, feedForward: 64, ungated: "gelu", biases: true, divided: false },
  { count: 12, used: 3, feedForward: 48, bias: "blk.10.exp_probs_b.bias" },
  { count: 10, used: 2, feedForward: 32, bias: "blk.11.exp_probs_b.bias", divided: false, scale: 2 },
  {
    count: 12,
    used: 3,
    feedForward: 32,
    sigmoid: true,
    bias: "blk.12.exp_probs_b.bias",
    groups: { count: 4, used: 2 },
  },
];
const halvesOf = ({ fused, ungated }: Mixture) => fused ? ["gate_up"] : ungated ? ["up"] : ["gate", "up"];

/** A file with F32 weights, and its values by name. */
function fileOf(layers: readonly Mixture[]) {
  const builder = new GgufBuilder();
  const values = new Map<string, Float32Array>();
  const add = (name: string, shape: number[], mean = 0, spread = 1 / Math.sqrt(shape[0])) => {
    const random = new Random(seedOf(`experts ${name}`));
    const length = shape.reduce((a, b) => a * b);
    const data = Float32Array.from({ length }, () => mean + spread * random.normal());
    builder.tensor(name, "F32", shape, data);
    values.set(name, data);
  };
  builder.set("general.architecture", "STRING", "experts");
  add("token_embd.weight", [EMBEDDING, VOCABULARY], 0, 1);
  add("output_norm.weight", [EMBEDDING], 2, 0.1);
  for (const [i, layer] of layers.entries()) {
    const { count, feedForward, bias, biases } = layer;
    const width = layer.fused ? 2 * feedForward : feedForward;
    const name = (tensor: string) => `blk.${i}.${tensor}`;
    add(name("ffn_norm.weight"), [EMBEDDING], 1, 0.1);
    add(name("ffn_gate_inp.weight"), [EMBEDDING, count], 0, 0.3);
    if (bias) add(bias, [count], 0, 0.2);
    if (layer.scales) add(layer.scales, [count], 1, 0.4);
    for (const half of halvesOf(layer)) add(name(`ffn_${half}_exps.weight`), [EMBEDDING, width, count]);
    add(name("ffn_down_exps.weight"), [feedForward, EMBEDDING, count]);
    if (!biases) continue;
    for (const half of halvesOf(layer)) add(name(`ffn_${half}_exps.bias`), [width, count], 0, 0.5);
    add(name("ffn_down_exps.bias"), [EMBEDDING, count], 0, 0.5);
  }
  return { bytes: builder.build().bytes, values };
}

const planOf = (layers: readonly Mixture[]) => (file: GgufFile): Plan => {
  const b = new PlanBuilder(file);
  const x = embed(b, "token_embd", VOCABULARY, EMBEDDING);
  for (const [i, layer] of layers.entries()) {
    const { count, feedForward, activation } = layer;
    const name = (tensor: string) => `blk.${i}.${tensor}`;
    const input = rmsNorm(b, x, name("ffn_norm"), EPSILON);
    const [logits] = linear(b, input, [{ name: name("ffn_gate_inp"), rows: count }]);
    const chosen = route(b, logits, layer);
    const [gate, up = gate] = halvesOf(layer).map((half) => name(`ffn_${half}_exps`));
    const inner = layer.ungated
      ? expertActivated(b, input, chosen, up, feedForward, layer.ungated)
      : expertGlu(b, input, chosen, gate, up, feedForward, activation, layer.limit);
    expertSum(b, inner, chosen, name("ffn_down_exps"), x);
  }
  candidates(b, rmsNorm(b, x, "output_norm", EPSILON, "logits"), VOCABULARY);
  return finishPlan(b, { architecture: "experts", vocabSize: VOCABULARY, contextLength: 512 });
};

/** Returns the logits after a token, computed in float64. */
function exact(
  values: ReadonlyMap<string, Float32Array>,
  layers: readonly Mixture[],
  token: number,
): number[] {
  const embedding = values.get("token_embd.weight")!;
  let x = [...embedding.subarray(token * EMBEDDING, (token + 1) * EMBEDDING)];
  for (const [i, layer] of layers.entries()) {
    const get = (tensor: string) => values.get(`blk.${i}.${tensor}.weight`)!;
    const h = norm(x, get("ffn_norm"));
    for (const [expert, weight] of choice(multiply(get("ffn_gate_inp"), h), layer, values)) {
      const own = (all: Float32Array) =>
        all.subarray(expert * all.length / layer.count, (expert + 1) * all.length / layer.count);
      const product = (half: string, row: readonly number[]) => {
        const bias = layer.biases ? own(values.get(`blk.${i}.ffn_${half}_exps.bias`)!) : undefined;
        return multiply(own(get(`ffn_${half}_exps`)), row).map((v, k) => v + (bias?.[k] ?? 0));
      };
      const both = halvesOf(layer).flatMap((half) => product(half, h));
      const up = both.slice(layer.feedForward);
      const inner = layer.ungated
        ? both.map((x) => exactActivation(layer.ungated!, x))
        : up.map((u, k) => exactGlu(layer.activation ?? "silu", both[k], u, layer.limit));
      x = x.map(((out) => (value, k) => value + weight * out[k])(product("down", inner)));
    }
  }
  return multiply(embedding, norm(x, values.get("output_norm.weight")!));
}

/** The chosen experts and their weights. */
function choice(
  logits: readonly number[],
  { used, sigmoid, bias: added, divided = true, scale = 1, scales, groups = { count: 1, used: 1 } }: Mixture,
  values: ReadonlyMap<string, Float32Array>,
): [number, number][] {
  const bias = added ? values.get(added)! : undefined;
  const all = logits.reduce((sum, l) => sum + Math.exp(l), 0);
  const scores = logits.map((l) => sigmoid ? 1 / (1 + Math.exp(-l)) : Math.exp(l) / all);
  const keys = scores.map((score, i) => score + (bias?.[i] ?? 0));
  const each = keys.length / groups.count;
  const worth = (group: number) =>
    keys.slice(group * each, (group + 1) * each).sort((a, b) => b - a).slice(0, 2).reduce((a, b) => a + b);
  const best = Array.from({ length: groups.count }, (_, group) => group)
    .sort((a, b) => worth(b) - worth(a)).slice(0, groups.used);
  const order = keys.map((key, i) => [i, key]).filter(([i]) => best.includes(Math.floor(i / each)))
    .sort(([, a], [, b]) => b - a);
  const chosen = order.slice(0, used).map(([i]) => i);
  const sum = divided ? chosen.reduce((total, i) => total + scores[i], 0) : 1;
  const own = scales ? values.get(scales)! : undefined;
  return chosen.map((i) => [i, scale * (own?.[i] ?? 1) * scores[i] / sum]);
}

function norm(row: readonly number[], weight: Float32Array): number[] {
  const mean = row.reduce((sum, v) => sum + v * v, 0) / row.length;
  return row.map((v, i) => v / Math.sqrt(mean + EPSILON) * weight[i]);
}

const SIZE = { kvBlocks: 160, maxRows: 256, maxLogitRows: 256 };
const EVERY = Array.from({ length: VOCABULARY }, (_, i) => i);
const randomTokens = (length: number, seed: string, below: number) =>
  Array.from({ length }, ((random) => () => random.below(below))(new Random(seedOf(seed))));

/** The largest difference of a logit from float64, over all rows. */
async function furthest(model: KernelModel, tokens: readonly number[], exactly: readonly number[][]) {
  const wanted = tokens.map((): Wanted => ({ candidates: 1, probe: EVERY }));
  const [rows] = await model.step([{ tokens, blockTable: shuffledBlocks(0, 8), wanted }]);
  return Math.max(
    ...rows.flatMap(({ probed }, t) => [...probed].map((v, i) => Math.abs(v - exactly[tokens[t]][i]))),
  );
}

Deno.test("experts: logits match float64 on every instruction set", async () => {
  const { bytes, values } = fileOf(LAYERS);
  const exactly = EVERY.map((token) => exact(values, LAYERS, token));
  // One row; few rows per expert; many rows; one repeated token, so that all rows choose the same experts.
  const prompts = [1, 2, 7, 33, 256].map((n) => randomTokens(n, `experts ${n}`, VOCABULARY));
  prompts.push(Array<number>(200).fill(17));
  for (const isa of instructionSets()) {
    for (const threads of [1, 3]) {
      using model = await KernelModel.loadAs(planOf(LAYERS), bytes, SIZE, { isa, threads });
      for (const tokens of prompts) {
        const error = await furthest(model, tokens, exactly);
        assert(error < 2e-4, `${isa}, ${tokens.length} tokens on ${threads} threads: ${error}`);
      }
    }
  }
});

fullTier.test("experts: logits change with another choice or other weights", async () => {
  const { bytes, values } = fileOf(LAYERS);
  using model = await KernelModel.loadAs(planOf(LAYERS), bytes, SIZE);
  const tokens = randomTokens(40, "other", VOCABULARY);
  const changed: readonly (readonly Mixture[])[] = [
    LAYERS.map((layer) => ({ ...layer, scale: 1 })),
    LAYERS.map((layer) => ({ ...layer, scales: undefined })),
    LAYERS.map((layer) => ({ ...layer, divided: undefined })),
    LAYERS.map((layer) => ({ ...layer, groups: undefined })),
    LAYERS.map((layer) => ({ ...layer, ungated: layer.ungated && "silu" as const })),
    LAYERS.map((layer) => ({ ...layer, activation: undefined })),
    LAYERS.map((layer) => ({ ...layer, biases: false })),
    LAYERS.map((layer) => ({ ...layer, used: Math.max(1, layer.used - 1) })),
    LAYERS.map((layer) => ({ ...layer, sigmoid: undefined })),
    LAYERS.map((layer) => ({ ...layer, bias: layer.sigmoid ? layer.bias : undefined })),
    LAYERS.map((layer) => ({ ...layer, bias: layer.sigmoid ? undefined : layer.bias })),
  ];
  for (const layers of changed) {
    const error = await furthest(model, tokens, EVERY.map((token) => exact(values, layers, token)));
    assert(error > 1e-2, `${JSON.stringify(layers)}: ${error}`);
  }
});

const BLOCKS = 3;
const PROMPT = 60;
const FULL: Wanted = { candidates: 4, probe: Array.from({ length: 300 }, (_, i) => i) };

/** Returns the bits of the answer after a prompt, with the given chunks and number of concurrent sequences. */
async function bits(model: KernelModel, cuts: readonly number[], others = 0): Promise<Uint32Array> {
  const tokens = randomTokens(PROMPT, "own", 300);
  let cached = 0;
  for (const [step, end] of [...cuts, PROMPT].entries()) {
    const own: Run = {
      tokens: tokens.slice(cached, end),
      cached,
      blockTable: shuffledBlocks(0, BLOCKS),
      wanted: end === PROMPT ? [FULL] : [],
    };
    const beside = Array.from({ length: others }, (_, i): Run => ({
      tokens: randomTokens(1 + (i + step) % 9, `beside ${i} ${step}`, 300),
      blockTable: shuffledBlocks((1 + i) * BLOCKS, BLOCKS),
    }));
    const place = step % (others + 1);
    const answers = await model.step([...beside.slice(0, place), own, ...beside.slice(place)]);
    cached = end;
    if (end < PROMPT) continue;
    const [{ ids, logits, logSumExp, probed }] = answers[place];
    return new Uint32Array(new Float32Array([...ids, ...logits, logSumExp, ...probed]).buffer);
  }
  throw new Error("The prompt has an end");
}

for (
  const types of [["F32"], ["F16", "BF16"], ["Q4_0"], ["Q4_K", "Q6_K"], ["Q8_0", "F16", "MXFP4"]] as const
) {
  Deno.test(`experts in ${types.join(", ")}: bit-identical for every batch, chunking and thread count`, async () => {
    const bytes = synthesize({
      architecture: "qwen3moe",
      types: types as readonly TensorType[],
      seed: 3,
      layers: 2,
      vocabulary: 300,
    });
    const found: Uint32Array[] = [];
    for (const threads of [2, 1, 5]) {
      using model = await KernelModel.load(bytes, SIZE, { threads });
      const every = Array.from({ length: PROMPT - 1 }, (_, i) => i + 1);
      for (const cuts of [[], every, [1], [3, 20], [17, 33, 50], every.filter((n) => n % 7 === 0)]) {
        for (const others of cuts === every ? [0] : [0, 15]) found.push(await bits(model, cuts, others));
      }
    }
    for (const one of found) assertEquals(one, found[0]);
  });
}

Deno.test("experts: a step reads only the chosen experts, and memory counts all of them", () => {
  const { bytes } = fileOf(LAYERS.slice(0, 1));
  const plan = planOf(LAYERS.slice(0, 1))(parseGguf(bytes));
  const cost = planCost(plan, (t) => t.kind === "vector" ? 0 : 4 * t.rows * t.columns);
  const one = 4 * 3 * EMBEDDING * 48;
  assertEquals(cost.experts, [{ count: 5, used: 2, bytes: 5 * one }]);
  const [router, output] = [4 * 5 * EMBEDDING, 4 * VOCABULARY * EMBEDDING];
  assertEquals([cost.weightBytes, cost.logitsWeightBytes], [router, output]);
  assertEquals(activeBytes(cost), router + output + 2 * one);
  assertEquals(cost.row.float, 2 * (router + 2 * one) / 4);
});

Deno.test("experts: the GPU is refused before loading, and auto selects the CPU", async () => {
  const path = await Deno.makeTempFile({ suffix: ".gguf" });
  try {
    await Deno.writeFile(path, synthesize({ architecture: "qwen3moe", types: ["Q8_0"], seed: 1, layers: 1 }));
    const file = await openGguf(path);
    const plan = buildPlan(file);
    const size = { kvBlocks: 1, maxRows: 1, maxLogitRows: 1 };
    await assertRejects(
      () => prepareBackend(file, plan, size, { backend: "webgpu" }),
      Error,
      'Cannot run mixtures of experts on the GPU yet; use backend: "cpu"',
    );
    const { backend, choice } = await prepareBackend(file, plan, size, { backend: "auto" });
    backend.close();
    assertEquals(backend.info.name, "cpu");
    assert(choice.includes("mixtures of experts"), choice);
  } finally {
    await Deno.remove(path);
  }
});
