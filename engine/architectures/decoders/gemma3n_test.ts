/** Gemma 3n: sparse layers, and files that are refused by key or tensor. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { lower } from "../../backend/webgpu/lowering.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { graphOf } from "../../plan/testing.ts";
import { printPlan } from "../../plan/print.ts";
import { buildPlan } from "../registry.ts";
import { type KeyChange, type TensorChange, testRefusals } from "../testing.ts";

const LAYERS = 6;
const FILE = parseGguf(synthesize({ architecture: "gemma3n", types: ["F32"], seed: 1, layers: LAYERS }));

Deno.test("gemma3n: the last layers cache nothing, and their published keys and values are left out", () => {
  const plan = buildPlan(FILE);
  assertEquals(plan.kv.layers.length, LAYERS - 2);
  const shared = ["attn_k", "attn_v", "attn_k_norm"].map((part) => `blk.${LAYERS - 1}.${part}.weight`);
  const tensors = new Map([...FILE.tensors].filter(([name]) => !shared.includes(name)));
  assertEquals(FILE.tensors.size - tensors.size, shared.length);
  assertEquals(graphOf(buildPlan({ ...FILE, tensors })), graphOf(plan));
  assert(printPlan(plan).includes("softcap 30"));
});

Deno.test("gemma3n: a layer sets low gates to zero when the file has a finite number of deviations for it", () => {
  const gates = (scales: readonly number[]) => {
    const file = changed(FILE, { key: ["activation_sparsity_scale", Float32Array.from(scales)] });
    return buildPlan(file).ops.flatMap<number | string>((op) =>
      op.op === "sparse_gate" ? [op.deviations] : op.op === "glu" ? ["all"] : []
    );
  };
  const none = -Infinity;
  assertEquals(gates([1.5, none, -0.5, none, none, 0]), [1.5, "all", -0.5, "all", "all", 0]);
});

Deno.test("gemma3n: every fifth layer has no window when the file has no pattern", () => {
  const windows = (file: GgufFile) =>
    buildPlan(file).ops.flatMap((op) => op.op === "attention" ? [op.window] : []);
  assertEquals(windows(FILE), [24, 0, 24, 0, 24, 0]);
  const silent = changed(FILE, { key: ["attention.sliding_window_pattern", undefined] });
  const own = changed(silent, { key: ["attention.shared_kv_layers", 0] });
  assertEquals(windows(own), [24, 24, 24, 24, 0, 24]);
});

Deno.test("gemma3n: the GPU refuses the model with a message", () => {
  assertThrows(() => lower(buildPlan(FILE)), Error, "Cannot run this model on the GPU");
});

const KEYS: readonly KeyChange[] = [
  ["altup.num_inputs", 3],
  ["altup.active_idx", 1],
  ["activation_sparsity_scale", undefined],
  ["activation_sparsity_scale", new Float32Array(LAYERS - 1)],
  ["activation_sparsity_scale", new Float32Array(LAYERS).fill(NaN)],
  ["activation_sparsity_scale", new Float32Array(LAYERS).fill(Infinity)],
  ["attention.shared_kv_layers", LAYERS],
  ["attention.shared_kv_layers", LAYERS - 1],
  ["attention.sliding_window", 0],
  ["embedding_length_per_layer_input", 0],
  ["final_logit_softcapping", -30],
  ["expert_count", 8],
];

const TENSORS: readonly TensorChange[] = [
  ["altup_proj.weight", undefined],
  ["altup_proj.weight", [256, 256, 4]],
  ["altup_unembd_proj.weight", [256, 768]],
  ["per_layer_token_embd.weight", undefined],
  ["per_layer_proj_norm.weight", [255]],
  ["blk.0.altup_router.weight", [256, 3]],
  ["blk.0.altup_router_norm.weight", undefined],
  ["blk.0.altup_predict_coef.weight", [4, 4]],
  ["blk.0.altup_correct_coef.weight", [4, 16]],
  ["blk.0.altup_correct_scale.weight", [255]],
  ["blk.0.laurel_l.weight", undefined],
  ["blk.1.laurel_l.weight", [256, 32]],
  ["blk.0.laurel_r.weight", [32, 256]],
  ["blk.0.laurel_post_norm.weight", undefined],
  ["blk.0.post_norm.weight", undefined],
  ["blk.0.attn_v.weight", [256, 64]],
  ["blk.5.ffn_gate.weight", [256, 256]],
];

testRefusals("gemma3n", FILE, { keys: KEYS, tensors: TENSORS });
