/** Llama 4: chunks, layers without positions, experts that read weighted rows, and files that are refused. */
import { assert, assertEquals } from "@std/assert";
import { KernelModel } from "../../../testing/kernel_model.ts";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { buildPlan, readPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const BYTES = synthesize({ architecture: "llama4", types: ["F32"], seed: 1, layers: 4 });
const FILE = parseGguf(BYTES);

const opsOf = (file: GgufFile, op: string) => buildPlan(file).ops.filter((one) => one.op === op);
const attentions = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "attention" ? [[op.window, op.chunked]] : []);
const heads = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) =>
    op.op === "rope_append" ? [[op.rotated, op.unweighted, op.beta, op.period, op.offset]] : []
  );

Deno.test("llama4: three of four layers attend in chunks; the fourth has no positions, but a temperature", () => {
  assertEquals(attentions(FILE), [[8192, true], [8192, true], [8192, true], [0, false]]);
  const near = [64, true, 0, 0, 0];
  assertEquals(heads(FILE), [near, near, near, [0, false, 0.1, 8192, 1]]);
});

Deno.test("llama4: heads of a model with 128 experts have no norms", () => {
  const many = synthesize({ architecture: "llama4", types: ["F32"], seed: 1, layers: 2, hollow: true });
  const tensors = new Map([...parseGguf(many).tensors].map(([name, tensor]) => {
    const shape = tensor.shape.map((n) => n === 12 ? 128 : n);
    return [name, { ...tensor, shape }];
  }));
  const file = changed({ ...parseGguf(many), tensors }, { key: ["expert_count", 128] });
  assertEquals(heads(file).map(([, unweighted]) => unweighted), [false, false]);
});

Deno.test("llama4: every second layer has experts, beside a shared one", () => {
  const count = (op: string) => opsOf(FILE, op).length;
  assertEquals([count("route"), count("expert_glu"), count("glu")], [4, 2, 4]);
});

const CHUNK = 24;
const PROBE = Array.from({ length: 20 }, (_, i) => i);
const SIZES = { kvBlocks: 8, maxRows: 64, maxLogitRows: 64 };

const tokensOf = (length: number) => Array.from({ length }, (_, i) => (i * 37) % 400);

/** Returns some logits after each token. */
async function logitsOf(model: KernelModel, tokens: readonly number[]): Promise<number[][]> {
  const wanted = tokens.map(() => ({ candidates: 1, probe: PROBE }));
  const [rows] = await model.step([{ tokens, blockTable: Int32Array.of(0, 1, 2, 3), wanted }]);
  return rows.map(({ probed }) => [...probed]);
}

Deno.test("llama4: rows attend only within their chunk", async () => {
  // With chunks in all layers, a chunk's rows do not depend on earlier ones: rotary positions are relative.
  const chunked = (file: GgufFile) => {
    const all = changed(file, { key: ["attention.sliding_window_pattern", [true, true, true, true]] });
    return readPlan(changed(all, { key: ["attention.sliding_window", CHUNK] }));
  };
  using model = await KernelModel.loadAs(chunked, BYTES, SIZES);
  const tokens = tokensOf(2 * CHUNK + 5);
  const all = await logitsOf(model, tokens);
  for (const start of [CHUNK, 2 * CHUNK]) {
    const alone = await logitsOf(model, tokens.slice(start, start + CHUNK));
    for (const [i, logits] of alone.entries()) {
      const off = Math.max(...logits.map((logit, k) => Math.abs(logit - all[start + i][k])));
      assert(off < 2e-3, `row ${i} of the chunk from ${start} on: off by ${off}`);
    }
  }
});

Deno.test("llama4: the temperature begins with the last token of its length", async () => {
  const length = 10;
  const growing = (file: GgufFile) =>
    readPlan(changed(file, { key: ["attention.temperature_length", length] }));
  using usual = await KernelModel.loadAs(readPlan, BYTES, SIZES);
  using model = await KernelModel.loadAs(growing, BYTES, SIZES);
  const tokens = tokensOf(length);
  const [plain, grown] = [await logitsOf(usual, tokens), await logitsOf(model, tokens)];
  assertEquals(grown.slice(0, -1), plain.slice(0, -1));
  assert(grown[length - 1].some((logit, k) => Math.abs(logit - plain[length - 1][k]) > 1e-3));
});

testRefusals("llama4", FILE, {
  keys: [
    ["attention.sliding_window", 0],
    ["attention.sliding_window_pattern", [true]],
    ["attention.temperature_length", 2 ** 30],
    ["expert_count", 0],
    ["expert_used_count", 2],
    ["expert_gating_func", 1],
    ["expert_weights_scale", 2],
    ["interleave_moe_layer_step", undefined],
    ["interleave_moe_layer_step", 0],
  ],
  tensors: [
    ["blk.0.ffn_gate.weight", undefined],
    ["blk.1.ffn_gate_inp.weight", [256, 11]],
    ["blk.1.ffn_up_shexp.weight", undefined],
    ["blk.1.exp_probs_b.bias", [12]],
    ["blk.0.attn_q_norm.weight", [64]],
  ],
});
