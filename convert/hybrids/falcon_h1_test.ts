/** Tests of Falcon-H1 checkpoints: multiplied matrices and rejected settings. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { type StoredTensor, storeFloats } from "../../testing/checkpoints.ts";
import { FALCON_H1 } from "../../tests/convert/published/hybrids.ts";
import type { Config } from "../../tests/convert/published/model.ts";
import { writePublished } from "../../tests/convert/published/write.ts";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { convertCheckpoint, ConvertError, type ConvertReport } from "../convert.ts";
import type { QuantizeTo } from "../quantize/quantize_to.ts";
import { Written } from "../testing.ts";

interface Converted {
  readonly seeded: Written;
  readonly written: Written;
  readonly report: ConvertReport;
}

/** Converts the published model with changed keys and tensors. */
async function converted(
  config: Config,
  change: (tensors: Map<string, StoredTensor>) => void = () => {},
  quantize?: QuantizeTo,
): Promise<Converted> {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    const seeded = await writePublished(folder, {
      ...FALCON_H1,
      config: { ...FALCON_H1.config, ...config },
      change(tensors, floats) {
        FALCON_H1.change!(tensors, floats);
        change(tensors);
      },
    });
    const out = join(folder, "out.gguf");
    const report = await convertCheckpoint({ folder, out, quantize });
    assertEquals(report.refusal, undefined);
    return { seeded, report, written: await Written.read(out) };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function valuesOf({ bytes }: StoredTensor): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

Deno.test("Falcon-H1: stores a multiplied BF16 matrix as F16 and reports the error", async () => {
  const name = "model.layers.0.feed_forward.down_proj.weight";
  let published = new Float32Array();
  const { written, report } = await converted({ mlp_multipliers: [1, 0.3] }, (tensors) => {
    const whole = storeFloats("BF16", [256, 768], valuesOf(tensors.get(name)!));
    tensors.set(name, whole);
    const halves = new Uint16Array(whole.bytes.buffer, whole.bytes.byteOffset, whole.bytes.byteLength / 2);
    published = new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
  });
  assertEquals(written.values("blk.0.ffn_down.weight"), published.map((value) => Math.f16round(value * 0.3)));
  const { type, source, error } = report.tensors.find(({ name }) => name === "blk.0.ffn_down.weight")!;
  assertEquals([type, source], ["F16", "BF16"]);
  assert(error!.relativeRms > 0 && error!.relativeRms < 3e-4, String(error!.relativeRms));
  const gate = report.tensors.find(({ name }) => name === "blk.0.ffn_gate.weight")!;
  assertEquals([gate.type, gate.error], ["F32", undefined]);
});

Deno.test("Falcon-H1: splits a tied embedding into two matrices when the multipliers differ", async () => {
  const tied = (tensors: Map<string, StoredTensor>) => void tensors.delete("lm_head.weight");
  const { seeded, written } = await converted({ tie_word_embeddings: true }, tied);
  const embedding = seeded.values("token_embd.weight");
  assertEquals(written.values("token_embd.weight"), embedding);
  assertEquals(written.values("output.weight"), embedding.map((value) => value / 4 / 32));
  const alike = await converted({ tie_word_embeddings: true, lm_head_multiplier: 4 }, tied);
  assertEquals(alike.written.gguf.tensors.has("output.weight"), false);
});

Deno.test("Falcon-H1: multiplies matrices before it quantizes them", async () => {
  const { seeded, written, report } = await converted({}, undefined, "q8_0");
  const error = report.tensors.find(({ name }) => name === "blk.2.ssm_in.weight")!.error!;
  assert(error.relativeRms > 0 && error.relativeRms < 0.01, String(error.relativeRms));
  assertEquals(written.gguf.tensors.get("blk.2.ssm_in.weight")!.type, "Q8_0");
  assertEquals(buildPlan(written.gguf).architecture, buildPlan(seeded.gguf).architecture);
});

Deno.test("Falcon-H1: norms Mamba2's results after the gate when config.json says so", async () => {
  const normed = { mamba_rms_norm: true };
  const { written } = await converted(normed, (tensors) => {
    for (let i = 0; i < 4; i++) {
      const ones = storeFloats("F32", [768], new Float32Array(768).fill(1));
      tensors.set(`model.layers.${i}.mamba.norm.weight`, ones);
    }
  });
  assertEquals(written.gguf.tensors.get("blk.3.ssm_norm.weight")!.shape, [384, 2]);
});

const REFUSED: readonly (readonly [key: string, config: Config])[] = [
  ["mamba_norm_before_gate", { mamba_rms_norm: true, mamba_norm_before_gate: undefined }],
  ["projectors_bias", { projectors_bias: true }],
  ["mamba_conv_bias", { mamba_conv_bias: false }],
  ["mamba_d_head", { mamba_d_head: 32 }],
  ["mamba_n_groups", { mamba_n_groups: 5 }],
  ["mlp_multipliers", { mlp_multipliers: [1] }],
  ["ssm_multipliers", { ssm_multipliers: [1, 1, 1, 1, 0] }],
  ["key_multiplier", { key_multiplier: -1 }],
  ["time_step_limit", { time_step_limit: [0.01, 0.1] }],
];

Deno.test("Falcon-H1: rejects unsupported settings, and the message names the setting", async () => {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    await writePublished(folder, FALCON_H1);
    for (const [key, config] of REFUSED) {
      const changed = JSON.stringify({ ...FALCON_H1.config, ...config });
      await Deno.writeTextFile(join(folder, "config.json"), changed);
      const convert = () => convertCheckpoint({ folder, out: join(folder, "out.gguf") });
      const { message } = await assertRejects(convert, ConvertError, undefined, key);
      assert(message.includes(key), `${key}: ${message}`);
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
