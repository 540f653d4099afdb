/** Tests of ERNIE 4.5 and Seed-OSS checkpoints. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { storeFloats } from "../../testing/checkpoints.ts";
import { writePublished } from "../../tests/convert/published/write.ts";
import { ERNIE45, ERNIE45_MOE, SEED_OSS } from "../../tests/convert/published/ernie45.ts";
import type { Config, Published } from "../../tests/convert/published/model.ts";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { everyNth } from "../../testing/tier.ts";
import { convertCheckpoint, ConvertError, type ConvertReport } from "../convert.ts";
import { Written } from "../testing.ts";

interface Converted {
  readonly seeded: Written;
  readonly written: Written;
  readonly report: ConvertReport;
}

/** Converts a published model with changed keys and tensors. */
async function converted(
  of: Published,
  config: Config = {},
  change: Published["change"] = () => {},
): Promise<Converted> {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    const seeded = await writePublished(folder, {
      ...of,
      config: { ...of.config, ...config },
      change(tensors, floats) {
        of.change?.(tensors, floats);
        change(tensors, floats);
      },
    });
    const out = join(folder, "out.gguf");
    const report = await convertCheckpoint({ folder, out });
    return { seeded, report, written: await Written.read(out) };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("convert: keeps ERNIE's row order and uses its default rotary base when config.json has none", async () => {
  const { seeded, written, report } = await converted(ERNIE45);
  assertEquals(report.architecture, "ernie4_5");
  const names = [...seeded.gguf.tensors.keys()].filter((name) => name !== "rope_freqs.weight");
  assertEquals([...written.gguf.tensors.keys()].sort(), names.sort());
  for (const name of names) assertEquals(written.values(name), seeded.values(name), name);
  assertEquals(written.gguf.metadata.getNumber("ernie4_5.rope.freq_base"), 500_000);
  assertEquals(buildPlan(written.gguf).architecture, "ernie4_5");
});

Deno.test("convert: gives ERNIE's layers experts by start and interval, with or without shared experts", async () => {
  const config = { moe_layer_start_index: 0, moe_layer_interval: 2, moe_num_shared_experts: 0 };
  const { written } = await converted(ERNIE45_MOE, config, (tensors, floats) => {
    for (const name of tensors.keys()) {
      if (/shared_experts|moe_statics|layers\.2\.mlp/.test(name)) tensors.delete(name);
    }
    for (const part of ["gate", "up", "down"]) {
      const { shape, values } = floats(`blk.0.ffn_${part}.weight`);
      tensors.set(`model.layers.2.mlp.${part}_proj.weight`, storeFloats("F32", [...shape], values));
    }
  });
  const routes = buildPlan(written.gguf).ops.flatMap((op) => op.op === "route" ? [op.bias] : []);
  assertEquals(routes, [undefined, undefined]);
  const has = (part: string) => [0, 1, 2, 3].map((i) => written.gguf.tensors.has(`blk.${i}.${part}.weight`));
  assertEquals(has("ffn_gate"), [true, false, true, false]);
  assertEquals(has("ffn_gate_exps"), [false, true, false, true]);
});

Deno.test("convert: leaves out ERNIE's drafting layer and reports it", async () => {
  const { report } = await converted(ERNIE45_MOE, {}, (tensors) => {
    for (
      const name of ["mtp_block.0.mlp.up_proj", "mtp_emb_norm.0", "mtp_hidden_norm.0", "mtp_linear_proj.0"]
    ) {
      tensors.set(`model.${name}.weight`, storeFloats("F32", [4], new Float32Array(4)));
    }
  });
  assertEquals(report.leftOut, { "multi-token prediction": 4 });
});

const KEYS: readonly (readonly [what: string, of: Published, key: string, value: unknown])[] = [
  ["ERNIE", ERNIE45, "use_bias", true],
  ["ERNIE's mixture", ERNIE45_MOE, "use_bias", true],
  ["ERNIE's mixture", ERNIE45_MOE, "moe_layer_end_index", 2],
  ["ERNIE's mixture", ERNIE45_MOE, "moe_layer_interval", 0],
  ["ERNIE's mixture", ERNIE45_MOE, "moe_layer_start_index", undefined],
  ["ERNIE's mixture", ERNIE45_MOE, "moe_num_experts", [12, 12]],
  ["ERNIE's mixture", ERNIE45_MOE, "moe_k", 13],
  ["ERNIE's mixture", ERNIE45_MOE, "moe_num_shared_experts", 1],
  ["Seed-OSS", SEED_OSS, "mlp_bias", true],
];
for (const [what, of, key, value] of everyNth(4, KEYS)) {
  Deno.test(`convert: rejects ${what} with ${key} ${JSON.stringify(value)}, and the message names the key or tensor`, async () => {
    const named = key === "moe_num_shared_experts" ? "model.layers.1.mlp.shared_experts.gate_proj" : key;
    const error = await assertRejects(() => converted(of, { [key]: value }), ConvertError);
    assert(error.message.includes(named), error.message);
  });
}

const TENSORS: readonly (readonly [what: string, of: Published, name: string, shape?: number[]])[] = [
  ["ERNIE's mixture without an expert", ERNIE45_MOE, "model.layers.1.mlp.experts.7.up_proj.weight"],
  ["Seed-OSS without a bias of queries", SEED_OSS, "model.layers.0.self_attn.q_proj.bias"],
  ["Seed-OSS with a bias behind attention", SEED_OSS, "model.layers.0.self_attn.o_proj.bias", [256]],
];
for (const [what, of, name, shape] of everyNth(4, TENSORS)) {
  Deno.test(`convert: rejects ${what}, and the message names the tensor`, async () => {
    const change: Published["change"] = (tensors) => {
      if (shape) tensors.set(name, storeFloats("F32", shape, new Float32Array(shape[0]).fill(1)));
      else tensors.delete(name);
    };
    const error = await assertRejects(() => converted(of, {}, change), ConvertError);
    assert(error.message.includes(name), error.message);
  });
}
