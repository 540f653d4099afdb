import { assertAlmostEquals, assertEquals } from "@std/assert";
import { synthesize } from "../../testing/synth/synth.ts";
import { buildPlan } from "../architectures/registry.ts";
import { parseGguf } from "../gguf/reader.ts";
import { byteLengthOf } from "../gguf/tensor_types.ts";
import { planCost, stepFloor } from "./cost.ts";
import { type PlanTensor, withKvType } from "./plan.ts";
import { smallHybrid, smallTransformer } from "./testing.ts";

const bytesOf = (t: PlanTensor) => byteLengthOf(t.info.type, t.rows * t.columns);
/** Weights in a layer of the small transformer: q and output, k and v, gate, up and down. */
const LAYER = 2 * 256 * 256 + 2 * 256 * 64 + 3 * 256 * 512;
const OUTPUT = 8 * 256;

Deno.test("cost: counts each matrix once and not the embedding's look-up", () => {
  const plan = buildPlan(smallTransformer({ architecture: "llama", type: "Q8_0", output: true }));
  assertEquals(planCost(plan, bytesOf), {
    weightBytes: 2 * byteLengthOf("Q8_0", LAYER),
    experts: [],
    logitsWeightBytes: byteLengthOf("Q8_0", OUTPUT),
    row: { int8: 2 * 2 * LAYER, float: 0 },
    logitsRow: { int8: 2 * OUTPUT, float: 0 },
    kvBytesPerToken: 2 * 2 * 2 * (32 * 2 + 2),
    stateBytes: 0,
  });
});

Deno.test("cost: an 8-bit KV cache takes a byte per value and a 2-byte scale per block of up to 32", () => {
  const plan = withKvType(buildPlan(smallTransformer({ architecture: "llama", type: "Q8_0" })), "q8_0");
  assertEquals(planCost(plan, bytesOf).kvBytesPerToken, 2 * 2 * 2 * (32 + 2));
  const odd = {
    ...plan,
    kv: { ...plan.kv, layers: plan.kv.layers.map((layer) => ({ ...layer, headDim: 80 })) },
  };
  assertEquals(planCost(odd, bytesOf).kvBytesPerToken, 2 * 2 * 2 * (80 + 3 * 2));
});

Deno.test("cost: q4_0 takes 26 bytes per 32 dimensions of a key and 18 of a value, and pads heads", () => {
  const plan = withKvType(buildPlan(smallTransformer({ architecture: "llama", type: "Q8_0" })), "q4_0");
  assertEquals(planCost(plan, bytesOf).kvBytesPerToken, 2 * 2 * (26 + 18));
  const odd = {
    ...plan,
    kv: { ...plan.kv, layers: plan.kv.layers.map((layer) => ({ ...layer, headDim: 80 })) },
  };
  assertEquals(planCost(odd, bytesOf).kvBytesPerToken, 2 * 2 * 3 * (26 + 18));
});

Deno.test("cost: counts a tied embedding as output", () => {
  const plan = buildPlan(smallTransformer({ architecture: "llama", type: "Q8_0" }));
  assertEquals(planCost(plan, bytesOf).logitsWeightBytes, byteLengthOf("Q8_0", OUTPUT));
});

Deno.test("cost: counts products with float weights as float operations", () => {
  const types = { ffn_down: "F16", token_embd: "BF16" } as const;
  const { row, logitsRow } = planCost(
    buildPlan(smallTransformer({ architecture: "llama", type: "Q8_0", types })),
    bytesOf,
  );
  assertEquals(row, { int8: 4 * (LAYER - 256 * 512), float: 4 * 256 * 512 });
  assertEquals(logitsRow, { int8: 0, float: 2 * OUTPUT });
});

Deno.test("cost: a step takes the longer of its reads and its arithmetic", () => {
  const cost = {
    weightBytes: 8e9,
    experts: [],
    logitsWeightBytes: 1e9,
    row: { int8: 100e9, float: 10e9 },
    logitsRow: { int8: 40e9, float: 0 },
    kvBytesPerToken: 1e6,
    stateBytes: 5e8,
  };
  const limits = { readGbps: 10, int8Gops: 200, f32Gflops: 50 };
  const floor = (rows: number, logitRows: number, kvTokens: number, sequences: number) =>
    stepFloor(cost, { rows, logitRows, kvTokens, sequences }, limits);
  assertAlmostEquals(floor(1, 1, 1000, 0), (8 + 1 + 1) / 10);
  assertAlmostEquals(floor(1, 1, 1000, 3), (8 + 1 + 1 + 3) / 10); // each state is read and written
  assertAlmostEquals(floor(1, 0, 0, 0), 0.8);
  assertAlmostEquals(floor(10, 2, 1000, 1), 10 * (0.5 + 0.2) + 2 * 0.2);
});

Deno.test("cost: a hybrid's state holds convolution inputs and a square matrix per value head", () => {
  const { stateBytes, kvBytesPerToken } = planCost(
    buildPlan(smallHybrid({ architecture: "qwen35", type: "Q8_0" })),
    bytesOf,
  );
  assertEquals(stateBytes, 3 * 4 * (3 * 8 * 64 + 4 * 64 * 64));
  assertEquals(kvBytesPerToken, 2 * 2 * (32 * 2 + 2));
});

for (const architecture of ["phi3", "modern-bert"] as const) {
  Deno.test(`cost: counts ${architecture}'s tensor of gate and up once`, () => {
    const plan = buildPlan(parseGguf(synthesize({ architecture, types: ["Q8_0"], seed: 1 })));
    const matrices = plan.tensors.filter(({ kind, info }) =>
      kind === "matrix" && info.name.startsWith("blk.")
    );
    const sum = (of: (tensor: PlanTensor) => number) => matrices.reduce((sum, tensor) => sum + of(tensor), 0);
    const { weightBytes, row } = planCost(plan, bytesOf);
    assertEquals([weightBytes, row.int8], [sum(bytesOf), 2 * sum(({ rows, columns }) => rows * columns)]);
  });
}
