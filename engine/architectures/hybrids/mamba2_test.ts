/** Mamba2 without attention: its plan, and files that are refused by key or tensor. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const FILE = parseGguf(
  synthesize({ architecture: "mamba2", types: ["F32"], seed: 1, layers: 2, hollow: true }),
);

Deno.test("mamba2: every layer has a recurrent state, and no layer has keys and values", () => {
  const plan = buildPlan(FILE);
  assertEquals([plan.states.length, plan.kv.layers.length], [2, 0]);
});

testRefusals("mamba2", FILE, {
  keys: [
    ["attention.head_count", 4],
    ["attention.head_count", undefined],
    ["ssm.conv_kernel", 3],
    ["ssm.group_count", 3],
    ["ssm.state_size", 24],
  ],
  tensors: [
    ["blk.1.ssm_norm.weight", undefined],
    ["blk.0.ssm_in.weight", [256, 512]],
    ["blk.0.attn_norm.weight", undefined],
  ],
});
