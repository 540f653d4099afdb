/** Nanbeige 4.2: caches and norms of each pass, and files that are refused. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import { graphOf } from "../../plan/testing.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const FILE = parseGguf(synthesize({ architecture: "nanbeige", types: ["F32"], seed: 1, layers: 2 }));

Deno.test("nanbeige: passes have their own KV caches and share the layers' tensors", () => {
  const plan = buildPlan(FILE);
  assertEquals(plan.kv.layers.length, 3 * 2);
  assertEquals(plan.tensors.length, FILE.tensors.size);
});

Deno.test("nanbeige: the final norm runs between passes, unless the file skips it", () => {
  const norms = (file: typeof FILE) => graphOf(buildPlan(file)).match(/rms_norm\(.*output_norm/g)?.length;
  const skipped = changed(FILE, { key: ["skip_loop_final_norm", true] });
  assertEquals([norms(FILE), norms(skipped)], [3, 1]);
});

Deno.test("nanbeige: one pass equals Llama's decoder", () => {
  for (const loops of [1, undefined]) {
    const file = changed(FILE, { key: ["num_loops", loops] });
    assertEquals(buildPlan(file).kv.layers.length, 2);
  }
});

testRefusals("nanbeige", FILE, {
  keys: [["num_loops", 0], ["num_loops", 513], ["attention.layer_norm_rms_epsilon", undefined]],
  tensors: [
    ["blk.2.attn_norm.weight", [256]],
    ["blk.1.attn_norm.weight", undefined],
    ["blk.0.attn_q_norm.weight", [64]],
  ],
});
