import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { type StoredTensor, storeFloats, tokenizerOf, writeCheckpoint } from "../../testing/checkpoints.ts";
import { Random } from "../../testing/random.ts";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { convertCheckpoint, ConvertError } from "../convert.ts";
import { Written } from "../testing.ts";

const HIDDEN = 64;
const FFN = 96;
/** Width of an expert. */
const EXPERT = 32;
const [HEADS, KV_HEADS, HEAD_DIM] = [4, 2, 16];
const MAMBA = { heads: 4, headDim: 32, groups: 2, stateSize: 16, taps: 4 };
const INNER = MAMBA.heads * MAMBA.headDim;
const CHANNELS = INNER + 2 * MAMBA.groups * MAMBA.stateSize;
const VOCABULARY = 320;

const DECODER = {
  hidden_size: HIDDEN,
  num_attention_heads: HEADS,
  num_key_value_heads: KV_HEADS,
  head_dim: HEAD_DIM,
  vocab_size: VOCABULARY,
  max_position_embeddings: 1024,
};
const GRANITE = {
  ...DECODER,
  model_type: "granitemoehybrid",
  num_hidden_layers: 2,
  intermediate_size: EXPERT,
  shared_intermediate_size: FFN,
  num_local_experts: 0,
  rms_norm_eps: 1e-5,
  layer_types: ["mamba", "attention"],
  position_embedding_type: "nope",
  mamba_n_heads: MAMBA.heads,
  mamba_d_head: MAMBA.headDim,
  mamba_n_groups: MAMBA.groups,
  mamba_d_state: MAMBA.stateSize,
  mamba_d_conv: MAMBA.taps,
  mamba_conv_bias: true,
  embedding_multiplier: 12,
  residual_multiplier: 0.25,
  attention_multiplier: 0.125,
  logits_scaling: 8,
  tie_word_embeddings: true,
};
const NEMOTRON = {
  ...DECODER,
  model_type: "nemotron_h",
  num_hidden_layers: 3,
  intermediate_size: FFN,
  layer_norm_epsilon: 1e-5,
  hybrid_override_pattern: "M*-",
  mamba_num_heads: MAMBA.heads,
  mamba_head_dim: MAMBA.headDim,
  n_groups: MAMBA.groups,
  ssm_state_size: MAMBA.stateSize,
  conv_kernel: MAMBA.taps,
  use_conv_bias: true,
  mlp_hidden_act: "relu2",
  tie_word_embeddings: false,
};

/** A checkpoint's BF16 values by name. BF16 holds every value exactly. */
class Checkpoint {
  readonly tensors = new Map<string, StoredTensor>();
  readonly values = new Map<string, Float32Array>();
  readonly #random = new Random(3);

  add(name: string, ...shape: number[]): void {
    const length = shape.reduce((product, n) => product * n);
    const values = Float32Array.from({ length }, () => (this.#random.below(33) - 16) / 64);
    this.values.set(name, values);
    this.tensors.set(name, storeFloats("BF16", shape, values));
  }

  mamba(from: string): void {
    this.add(`${from}in_proj.weight`, INNER + CHANNELS + MAMBA.heads, HIDDEN);
    this.add(`${from}conv1d.weight`, CHANNELS, 1, MAMBA.taps);
    this.add(`${from}conv1d.bias`, CHANNELS);
    for (const name of ["dt_bias", "A_log", "D"]) this.add(from + name, MAMBA.heads);
    this.add(`${from}norm.weight`, INNER);
    this.add(`${from}out_proj.weight`, HIDDEN, INNER);
  }

  attention(from: string): void {
    this.add(`${from}q_proj.weight`, HEADS * HEAD_DIM, HIDDEN);
    for (const name of ["k_proj", "v_proj"]) this.add(`${from}${name}.weight`, KV_HEADS * HEAD_DIM, HIDDEN);
    this.add(`${from}o_proj.weight`, HIDDEN, HEADS * HEAD_DIM);
  }

  async write(folder: string, config: Record<string, unknown>): Promise<void> {
    await writeCheckpoint(folder, { ...tokenizerOf("qwen3"), shards: 1, config, tensors: this.tensors });
  }

  /** Converts the checkpoint and returns the result of `read` on the file. */
  async convert<T>(config: Record<string, unknown>, read: (written: Written) => T): Promise<T> {
    const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
    try {
      await this.write(folder, config);
      const out = join(folder, "out.gguf");
      const { refusal } = await convertCheckpoint({ folder, out });
      assertEquals(refusal, undefined);
      return read(await Written.read(out));
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  }
}

const EXPERTS = { num_local_experts: 3, num_experts_per_tok: 2 };

function granite(experts = 0): Checkpoint {
  const c = new Checkpoint();
  c.add("model.embed_tokens.weight", VOCABULARY, HIDDEN);
  c.add("model.norm.weight", HIDDEN);
  c.mamba("model.layers.0.mamba.");
  c.attention("model.layers.1.self_attn.");
  for (const layer of [0, 1].map((i) => `model.layers.${i}`)) {
    for (const norm of ["input_layernorm", "post_attention_layernorm"]) {
      c.add(`${layer}.${norm}.weight`, HIDDEN);
    }
    c.add(`${layer}.shared_mlp.input_linear.weight`, 2 * FFN, HIDDEN);
    c.add(`${layer}.shared_mlp.output_linear.weight`, HIDDEN, FFN);
    if (experts === 0) continue;
    c.add(`${layer}.block_sparse_moe.router.layer.weight`, experts, HIDDEN);
    c.add(`${layer}.block_sparse_moe.input_linear.weight`, experts, 2 * EXPERT, HIDDEN);
    c.add(`${layer}.block_sparse_moe.output_linear.weight`, experts, HIDDEN, EXPERT);
  }
  return c;
}

function nemotron(): Checkpoint {
  const c = new Checkpoint();
  c.add("backbone.embeddings.weight", VOCABULARY, HIDDEN);
  c.add("backbone.norm_f.weight", HIDDEN);
  c.add("lm_head.weight", VOCABULARY, HIDDEN);
  for (const i of [0, 1, 2]) c.add(`backbone.layers.${i}.norm.weight`, HIDDEN);
  c.mamba("backbone.layers.0.mixer.");
  c.attention("backbone.layers.1.mixer.");
  c.add("backbone.layers.2.mixer.up_proj.weight", FFN, HIDDEN);
  c.add("backbone.layers.2.mixer.down_proj.weight", HIDDEN, FFN);
  return c;
}

const MOE = {
  hybrid_override_pattern: "M*E",
  n_routed_experts: 3,
  num_experts_per_tok: 2,
  n_shared_experts: 1,
  n_group: 1,
  topk_group: 1,
  moe_intermediate_size: EXPERT,
  moe_shared_expert_intermediate_size: FFN,
  norm_topk_prob: true,
  routed_scaling_factor: 2.5,
};
const LATENT = 48;

function nemotronMoe(latent?: number): Checkpoint {
  const c = new Checkpoint();
  c.add("backbone.embeddings.weight", VOCABULARY, HIDDEN);
  c.add("backbone.norm_f.weight", HIDDEN);
  c.add("lm_head.weight", VOCABULARY, HIDDEN);
  for (const i of [0, 1, 2]) c.add(`backbone.layers.${i}.norm.weight`, HIDDEN);
  c.mamba("backbone.layers.0.mixer.");
  c.attention("backbone.layers.1.mixer.");
  const mixer = "backbone.layers.2.mixer.";
  c.add(`${mixer}gate.weight`, 3, HIDDEN);
  c.add(`${mixer}gate.e_score_correction_bias`, 3);
  if (latent) {
    c.add(`${mixer}fc1_latent_proj.weight`, latent, HIDDEN);
    c.add(`${mixer}fc2_latent_proj.weight`, HIDDEN, latent);
  }
  for (const expert of [0, 1, 2]) {
    c.add(`${mixer}experts.${expert}.up_proj.weight`, EXPERT, latent ?? HIDDEN);
    c.add(`${mixer}experts.${expert}.down_proj.weight`, latent ?? HIDDEN, EXPERT);
  }
  c.add(`${mixer}shared_experts.up_proj.weight`, FFN, HIDDEN);
  c.add(`${mixer}shared_experts.down_proj.weight`, HIDDEN, FFN);
  c.add("mtp.layers.0.eh_proj.weight", HIDDEN, 2 * HIDDEN);
  return c;
}

function assertMamba(written: Written, values: ReadonlyMap<string, Float32Array>, from: string): void {
  const same = {
    "ssm_in.weight": "in_proj.weight",
    "ssm_conv1d.weight": "conv1d.weight",
    "ssm_conv1d.bias": "conv1d.bias",
    "ssm_dt.bias": "dt_bias",
    ssm_d: "D",
    "ssm_norm.weight": "norm.weight",
    "ssm_out.weight": "out_proj.weight",
  };
  for (const [name, source] of Object.entries(same)) {
    assertEquals(written.values(`blk.0.${name}`), values.get(from + source), name);
  }
  const decay = values.get(`${from}A_log`)!.map((log) => -Math.exp(log));
  assertEquals(written.values("blk.0.ssm_a"), decay);
}

Deno.test("convert: splits granitemoehybrid's fused feed-forward block and writes its multipliers", async () => {
  const checkpoint = granite();
  await checkpoint.convert(GRANITE, (written) => {
    const { values } = checkpoint;
    assertMamba(written, values, "model.layers.0.mamba.");
    const fused = values.get("model.layers.1.shared_mlp.input_linear.weight")!;
    assertEquals(written.values("blk.1.ffn_gate.weight"), fused.subarray(0, FFN * HIDDEN));
    assertEquals(written.values("blk.1.ffn_up.weight"), fused.subarray(FFN * HIDDEN));
    const down = values.get("model.layers.0.shared_mlp.output_linear.weight")!;
    assertEquals(written.values("blk.0.ffn_down.weight"), down);
    const { metadata } = written.gguf;
    assertEquals(Array.from(metadata.getNumbers("granitehybrid.attention.head_count_kv")!), [0, KV_HEADS]);
    assertEquals(metadata.getNumber("granitehybrid.logit_scale"), 8);
    assertEquals(metadata.getBoolean("granitehybrid.rope.scaling.finetuned"), false);
    const plan = buildPlan(written.gguf);
    assertEquals([plan.architecture, plan.rope.length], ["granitehybrid", 0]);
  });
});

Deno.test("convert: separates gate and up of granitemoehybrid's experts and keeps the shared expert", async () => {
  const checkpoint = granite(3);
  await checkpoint.convert({ ...GRANITE, ...EXPERTS }, (written) => {
    const from = "model.layers.1.";
    const source = (name: string) => checkpoint.values.get(`${from}${name}.weight`)!;
    const fused = source("block_sparse_moe.input_linear");
    const size = EXPERT * HIDDEN;
    const part = (half: number) =>
      [0, 1, 2].flatMap((e) => [...fused.subarray((2 * e + half) * size, (2 * e + half + 1) * size)]);
    assertEquals([...written.values("blk.1.ffn_gate_exps.weight")], part(0));
    assertEquals([...written.values("blk.1.ffn_up_exps.weight")], part(1));
    const same = {
      "ffn_down_exps.weight": "block_sparse_moe.output_linear",
      "ffn_gate_inp.weight": "block_sparse_moe.router.layer",
      "ffn_down_shexp.weight": "shared_mlp.output_linear",
    };
    for (const [name, from] of Object.entries(same)) {
      assertEquals(written.values(`blk.1.${name}`), source(from), name);
    }
    const up = source("shared_mlp.input_linear").subarray(FFN * HIDDEN);
    assertEquals(written.values("blk.1.ffn_up_shexp.weight"), up);
    const { tensors } = written.gguf;
    assertEquals(tensors.get("blk.0.ffn_gate_exps.weight")!.shape, [HIDDEN, EXPERT, 3]);
    assertEquals(buildPlan(written.gguf).architecture, "granitehybrid");
  });
});

Deno.test("convert: writes nemotron_h's values from its own tensor names", async () => {
  const checkpoint = nemotron();
  await checkpoint.convert(NEMOTRON, (written) => {
    const { values } = checkpoint;
    assertMamba(written, values, "backbone.layers.0.mixer.");
    const same = {
      "token_embd.weight": "backbone.embeddings.weight",
      "output_norm.weight": "backbone.norm_f.weight",
      "blk.1.attn_q.weight": "backbone.layers.1.mixer.q_proj.weight",
      "blk.2.attn_norm.weight": "backbone.layers.2.norm.weight",
      "blk.2.ffn_up.weight": "backbone.layers.2.mixer.up_proj.weight",
    };
    for (const [name, source] of Object.entries(same)) {
      assertEquals(written.values(name), values.get(source), name);
    }
    const { metadata } = written.gguf;
    assertEquals(Array.from(metadata.getNumbers("nemotron_h.feed_forward_length")!), [0, 0, FFN]);
    assertEquals(buildPlan(written.gguf).architecture, "nemotron_h");
  });
});

for (const latent of [undefined, LATENT]) {
  const what = latent ? "narrower rows" : "whole rows";
  Deno.test(`convert: writes nemotron_h's experts of ${what} and the shared expert, without drafting layers`, async () => {
    const checkpoint = nemotronMoe(latent);
    const config = { ...NEMOTRON, ...MOE, ...latent && { moe_latent_size: latent } };
    await checkpoint.convert(config, (written) => {
      const source = (name: string) => checkpoint.values.get(`backbone.layers.2.mixer.${name}`)!;
      const same = {
        "ffn_gate_inp.weight": "gate.weight",
        "exp_probs_b.bias": "gate.e_score_correction_bias",
        "ffn_up_shexp.weight": "shared_experts.up_proj.weight",
        "ffn_down_shexp.weight": "shared_experts.down_proj.weight",
        ...latent && {
          "ffn_latent_down.weight": "fc1_latent_proj.weight",
          "ffn_latent_up.weight": "fc2_latent_proj.weight",
        },
      };
      for (const [name, from] of Object.entries(same)) {
        assertEquals(written.values(`blk.2.${name}`), source(from), name);
      }
      for (const part of ["up", "down"]) {
        const all = [0, 1, 2].flatMap((i) => [...source(`experts.${i}.${part}_proj.weight`)]);
        assertEquals([...written.values(`blk.2.ffn_${part}_exps.weight`)], all, part);
      }
      const { metadata, tensors } = written.gguf;
      const key = (name: string) => `nemotron_h_moe.${name}`;
      assertEquals(Array.from(metadata.getNumbers(key("feed_forward_length"))!), [0, 0, EXPERT]);
      assertEquals(metadata.getNumber(key("expert_weights_scale")), 2.5);
      assertEquals(metadata.getBoolean(key("expert_weights_norm")), true);
      assertEquals(metadata.getNumber(key("moe_latent_size"), 0), latent ?? 0);
      assertEquals(tensors.get("blk.2.ffn_up_exps.weight")!.shape, [latent ?? HIDDEN, EXPERT, 3]);
      assertEquals(buildPlan(written.gguf).architecture, "nemotron_h_moe");
    });
  });
}

/**
 * Returns the config.json of newer transformers: layers in a list without a count, and older names of
 * Mamba2's keys.
 */
function listed(types: readonly string[], config: Record<string, unknown>): Record<string, unknown> {
  const { num_hidden_layers: _, hybrid_override_pattern: __, n_groups, conv_kernel, ...others } = {
    ...NEMOTRON,
    ...config,
  } as Record<string, unknown>;
  return { ...others, mamba_n_groups: n_groups, mamba_d_conv: conv_kernel, layers_block_type: types };
}

Deno.test("convert: writes the same file from hybrids' newer keys and transformers' tensor names", async () => {
  const kept = (written: Written) =>
    [...written.gguf.tensors.keys()].map((name) => [name, written.values(name)]);
  const plain = await nemotron().convert(NEMOTRON, kept);
  const mixture = await nemotronMoe().convert({ ...NEMOTRON, ...MOE }, kept);
  const renamed = (c: Checkpoint) => {
    for (const [name, tensor] of [...c.tensors]) {
      c.tensors.delete(name);
      c.tensors.set(name.replace(/^backbone\./, "model."), tensor);
    }
    return c;
  };
  const { head_dim, ...headless } = NEMOTRON as Record<string, unknown>;
  const cases: [Checkpoint, Record<string, unknown>, typeof plain][] = [
    [nemotron(), listed(["mamba", "attention", "mlp"], {}), plain],
    [nemotron(), listed(["linear_attention", "full_attention", "mlp"], {}), plain],
    [renamed(nemotron()), NEMOTRON, plain],
    [nemotron(), { ...headless, attention_head_dim: head_dim }, plain],
    [nemotronMoe(), listed(["mamba", "attention", "moe"], MOE), mixture],
    [together(renamed(nemotronMoe())), listed(["linear_attention", "full_attention", "moe"], MOE), mixture],
  ];
  const layer_types = ["linear_attention", "full_attention"];
  cases.push([granite(), { ...GRANITE, layer_types }, await granite().convert(GRANITE, kept)]);
  for (const [checkpoint, config, wanted] of cases) {
    assertEquals(await checkpoint.convert(config, kept), wanted);
  }
});

/** Stacks the third layer's experts into two tensors. */
function together(c: Checkpoint): Checkpoint {
  const mixer = "model.layers.2.mixer.";
  for (const [part, rows, columns] of [["up_proj", EXPERT, HIDDEN], ["down_proj", HIDDEN, EXPERT]] as const) {
    const values = [0, 1, 2].flatMap((i) => {
      const name = `experts.${i}.${part}.weight`;
      c.tensors.delete(mixer + name);
      return [...c.values.get(`backbone.layers.2.mixer.${name}`)!];
    });
    c.tensors.set(
      `${mixer}experts.${part}`,
      storeFloats("BF16", [3, rows, columns], Float32Array.from(values)),
    );
  }
  return c;
}

Deno.test("convert: rejects unsupported hybrid settings by key", async () => {
  const bad = [
    [granite(3), { ...GRANITE, ...EXPERTS }, { num_experts_per_tok: 4 }],
    [granite(), GRANITE, { layer_types: ["mamba"] }],
    [granite(), GRANITE, { mamba_n_groups: 3 }],
    [granite(), GRANITE, { mamba_proj_bias: true }],
    [granite(), GRANITE, { embedding_multiplier: -1 }],
    [granite(), GRANITE, { time_step_limit: [0.001, 100] }],
    [nemotron(), NEMOTRON, { time_step_limit: [0, 0.1] }],
    [nemotron(), NEMOTRON, { time_step_limit: "none" }],
    [nemotron(), NEMOTRON, { hybrid_override_pattern: "-*E" }],
    [nemotron(), NEMOTRON, { hybrid_override_pattern: "M*X" }],
    [nemotron(), NEMOTRON, { layers_block_type: ["mamba", "attention", "mlp", "mlp"] }],
    [nemotron(), NEMOTRON, { layers_block_type: ["mamba", "attention", "hybrid"] }],
    [nemotron(), NEMOTRON, { layers_block_type: ["moe", "attention", "mlp"] }],
    [nemotron(), NEMOTRON, { layers_block_type: ["M", "*", "-"] }],
    [nemotron(), NEMOTRON, { mamba_hidden_act: "gelu" }],
    [nemotronMoe(), { ...NEMOTRON, ...MOE }, { num_experts_per_tok: 4 }],
    [nemotronMoe(), { ...NEMOTRON, ...MOE }, { n_group: 2 }],
    [nemotronMoe(), { ...NEMOTRON, ...MOE }, { n_shared_experts: 2 }],
    [nemotronMoe(), { ...NEMOTRON, ...MOE }, { routed_scaling_factor: 0 }],
    [nemotron(), NEMOTRON, { mlp_hidden_act: "silu" }],
  ] as const;
  for (const [checkpoint, config, change] of bad) {
    const error = await assertRejects(
      () => checkpoint.convert({ ...config, ...change }, () => {}),
      ConvertError,
    );
    assert(error.message.includes(Object.keys(change)[0]), error.message);
  }
});

for (
  const [what, limits] of [
    ["as Python writes it", "[0.0, Infinity]"],
    ["in an object", `[0.0, {"__float__": "Infinity"}]`],
    ["beside a text that says it", `[0.0, Infinity], "notes": "\\"NaN, -Infinity\\""`],
  ]
) {
  Deno.test(`convert: accepts Mamba2 step sizes without an upper bound, ${what}`, async () => {
    const checkpoint = nemotron();
    const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
    try {
      await checkpoint.write(folder, NEMOTRON);
      const path = join(folder, "config.json");
      const config = await Deno.readTextFile(path);
      await Deno.writeTextFile(path, config.replace("{", `{"time_step_limit": ${limits},`));
      const out = join(folder, "out.gguf");
      await convertCheckpoint({ folder, out });
      assertEquals(buildPlan((await Written.read(out)).gguf).architecture, "nemotron_h");
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}

Deno.test("convert: uses the configuration class's defaults when granitemoehybrid has no multipliers", async () => {
  const { attention_multiplier: _, ...config } = GRANITE;
  await granite().convert(config, ({ gguf: { metadata } }) => {
    assertEquals(metadata.getNumber("granitehybrid.attention.scale"), 1);
  });
});
