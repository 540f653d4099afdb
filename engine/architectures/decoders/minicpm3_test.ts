/** MiniCPM3: attention, scales, rotation and refused files. */
import { assertAlmostEquals, assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { buildPlan, readRopeFactors } from "../registry.ts";
import { withContext } from "../../plan/plan.ts";
import { testRefusals } from "../testing.ts";

const FILE = parseGguf(synthesize({ architecture: "minicpm3", types: ["Q8_0"], seed: 1, layers: 2 }));
const factors = await readRopeFactors(FILE);
const PLAN = buildPlan(FILE, factors);

Deno.test("minicpm3: caches one row per token for all heads", () => {
  assertEquals(PLAN.kv.layers, Array(2).fill({ heads: 1, headDim: 288, group: 0 }));
});

Deno.test("minicpm3: splits the matrix of keys and values, and transposes the keys", () => {
  const parts = PLAN.tensors.filter(({ info }) => info.name.startsWith("blk.1.attn_kv_b"));
  assertEquals(parts.map(({ info: { name, type, shape } }) => [name, type, shape]), [
    ["blk.1.attn_kv_b.weight[0:96]", "F16", [96, 256, 8]],
    ["blk.1.attn_kv_b.weight[96:160]", "Q8_0", [256, 64, 8]],
  ]);
});

Deno.test("minicpm3: scores, residuals, embedding and logits have the scales of MiniCPM3", () => {
  const numbers = PLAN.ops.flatMap((op) =>
    op.op === "attention" || op.op === "embed"
      ? [op.scale]
      : op.op === "matmul"
      ? op.parts.flatMap(({ add }) => add ?? [])
      : []
  );
  const [embedding, ...layers] = numbers;
  assertEquals(embedding, 12);
  const residual = 1.4 / Math.SQRT2;
  const expected = [1 / Math.sqrt(128), residual, residual];
  [...expected, ...expected].forEach((scale, i) => assertAlmostEquals(Number(layers[i]), scale, 1e-6));
});

Deno.test("minicpm3: uses LongRoPE's long factors for contexts above the original one", () => {
  const slowest = (context: number) => withContext(PLAN, context).rope[0].frequencies.at(-1)!;
  assertAlmostEquals(slowest(64) / slowest(65), (1 + 30 * 15 / 16) / (1 + 2 * 15 / 16), 1e-6);
});

testRefusals("minicpm3", FILE, {
  keys: [
    ["attention.head_count_kv", 4],
    ["attention.kv_lora_rank", undefined],
    ["attention.q_lora_rank", 2 ** 20],
    ["rope.dimension_count", 128],
  ],
  tensors: [
    ["blk.0.attn_kv_b.weight", undefined],
    ["blk.0.attn_kv_b.weight", [256, 1024]],
    ["blk.0.attn_q_a_norm.weight", undefined],
    ["blk.1.attn_k_b.weight", [96, 256, 8]],
  ],
});
