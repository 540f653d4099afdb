import { assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { type StoredTensor, storeFloats, tokenizerOf, writeCheckpoint } from "../../testing/checkpoints.ts";
import { Random } from "../../testing/random.ts";
import { buildPlan, readRopeFactors } from "../../engine/architectures/registry.ts";
import { convertCheckpoint, ConvertError } from "../convert.ts";
import { Written } from "../testing.ts";

const [HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY] = [64, 96, 4, 2, 16, 320];
const DECODER = {
  num_hidden_layers: 1,
  hidden_size: HIDDEN,
  intermediate_size: FFN,
  num_attention_heads: HEADS,
  num_key_value_heads: KV_HEADS,
  vocab_size: VOCABULARY,
  max_position_embeddings: 1024,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: true,
};
const SMOLLM3 = { ...DECODER, model_type: "smollm3", no_rope_layers: [1], no_rope_layer_interval: 4 };
const GRANITE = {
  ...DECODER,
  model_type: "granite",
  embedding_multiplier: 12,
  residual_multiplier: 0.25,
  attention_multiplier: 0.125,
  logits_scaling: 8,
};
const MISTRAL = { ...DECODER, model_type: "mistral", sliding_window: null, head_dim: null };
const FACTORS = Array.from({ length: HEAD_DIM / 2 }, (_, i) => 1 + i);
const PHI3 = {
  ...DECODER,
  model_type: "phi3",
  sliding_window: 47,
  original_max_position_embeddings: 256,
  rope_scaling: { type: "longrope", short_factor: FACTORS, long_factor: FACTORS.map((f) => 2 * f) },
};

const ARCEE = {
  ...DECODER,
  model_type: "arcee",
  hidden_act: "relu2",
  rope_scaling: {
    rope_type: "yarn",
    factor: 20,
    mscale: 1,
    beta_fast: 32,
    beta_slow: 1,
    original_max_position_embeddings: 256,
  },
};
const MINICPM = {
  ...DECODER,
  model_type: "minicpm",
  scale_emb: 12,
  scale_depth: 1.5,
  dim_model_base: 256,
  rope_scaling: { ...PHI3.rope_scaling, rope_type: "longrope", original_max_position_embeddings: 1024 },
};

/**
 * Returns a BF16 checkpoint with these shapes, and its values by tensor name. BF16 holds every value exactly.
 */
function checkpoint(shapes: Readonly<Record<string, readonly number[]>>) {
  const random = new Random(3);
  const values = new Map<string, Float32Array>();
  const tensors = new Map<string, StoredTensor>();
  for (const [name, shape] of Object.entries(shapes)) {
    const length = shape.reduce((product, n) => product * n);
    const floats = Float32Array.from({ length }, () => (random.below(33) - 16) / 64);
    values.set(name, floats);
    tensors.set(name, storeFloats("BF16", [...shape], floats));
  }
  return { values, tensors };
}

const COMMON = {
  "model.embed_tokens.weight": [VOCABULARY, HIDDEN],
  "model.norm.weight": [HIDDEN],
  "model.layers.0.input_layernorm.weight": [HIDDEN],
  "model.layers.0.post_attention_layernorm.weight": [HIDDEN],
  "model.layers.0.self_attn.o_proj.weight": [HIDDEN, HEADS * HEAD_DIM],
  "model.layers.0.mlp.down_proj.weight": [HIDDEN, FFN],
};
const SEPARATE = checkpoint({
  ...COMMON,
  "model.layers.0.self_attn.q_proj.weight": [HEADS * HEAD_DIM, HIDDEN],
  "model.layers.0.self_attn.k_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
  "model.layers.0.self_attn.v_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
  "model.layers.0.mlp.gate_proj.weight": [FFN, HIDDEN],
  "model.layers.0.mlp.up_proj.weight": [FFN, HIDDEN],
});
const UNGATED = checkpoint({
  ...COMMON,
  "model.layers.0.self_attn.q_proj.weight": [HEADS * HEAD_DIM, HIDDEN],
  "model.layers.0.self_attn.k_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
  "model.layers.0.self_attn.v_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
  "model.layers.0.mlp.up_proj.weight": [FFN, HIDDEN],
});
const FUSED = checkpoint({
  ...COMMON,
  "model.layers.0.self_attn.qkv_proj.weight": [(HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN],
  "model.layers.0.mlp.gate_up_proj.weight": [2 * FFN, HIDDEN],
});

const EXAONE_NAMES: readonly (readonly [llamas: string, own: string])[] = [
  ["model.embed_tokens", "transformer.wte"],
  ["model.norm", "transformer.ln_f"],
  ["model.layers.", "transformer.h."],
  ["input_layernorm", "ln_1"],
  ["post_attention_layernorm", "ln_2"],
  ["self_attn.o_proj", "attn.attention.out_proj"],
  ["self_attn.", "attn.attention."],
  ["mlp.gate_proj", "mlp.c_fc_0"],
  ["mlp.up_proj", "mlp.c_fc_1"],
  ["mlp.down_proj", "mlp.c_proj"],
];
function exaoneName(name: string): string {
  return EXAONE_NAMES.reduce((name, [llamas, own]) => name.replace(llamas, own), name);
}
const EXAONE_TENSORS = {
  values: SEPARATE.values,
  tensors: new Map([...SEPARATE.tensors].map(([name, tensor]) => [exaoneName(name), tensor] as const)),
};
const { num_hidden_layers: num_layers, rms_norm_eps: layer_norm_epsilon, ...EXAONE_REST } = DECODER;
const EXAONE = {
  ...EXAONE_REST,
  model_type: "exaone",
  num_layers,
  layer_norm_epsilon,
  activation_function: "silu",
  rope_scaling: {
    rope_type: "llama3",
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 8192,
  },
};

const INTERN = {
  ...DECODER,
  model_type: "internlm2",
  bias: false,
  rope_scaling: { type: "dynamic", factor: 2 },
};
const INTERN_TENSORS = internTensors();
/**
 * Returns InternLM 2's tensors: each KV head has its two query heads, its key and its value in one matrix.
 */
function internTensors(): typeof SEPARATE {
  const names: Record<string, string> = {
    "model.embed_tokens": "model.tok_embeddings",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
  };
  const tensors = new Map<string, StoredTensor>();
  for (const [name, tensor] of SEPARATE.tensors) {
    const own = Object.entries(names).reduce((name, [llamas, own]) => name.replace(llamas, own), name);
    if (!/[qkv]_proj/.test(name)) tensors.set(own, tensor);
  }
  const head = (part: string, index: number) => {
    const size = HEAD_DIM * HIDDEN;
    const values = SEPARATE.values.get(`model.layers.0.self_attn.${part}_proj.weight`)!;
    return [...values.subarray(index * size, (index + 1) * size)];
  };
  const rows = [0, 1].flatMap((
    kv,
  ) => [head("q", 2 * kv), head("q", 2 * kv + 1), head("k", kv), head("v", kv)]);
  const shape = [(HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN];
  tensors.set(
    "model.layers.0.attention.wqkv.weight",
    storeFloats("BF16", shape, Float32Array.from(rows.flat())),
  );
  return { values: SEPARATE.values, tensors };
}

/** Converts a checkpoint and returns the result of `read` on the file. */
async function converted<T>(
  { tensors }: typeof SEPARATE,
  config: Record<string, unknown>,
  read: (written: Written) => T | Promise<T>,
): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    await writeCheckpoint(folder, { ...tokenizerOf("qwen3"), shards: 1, config, tensors });
    const out = join(folder, "out.gguf");
    const { refusal } = await convertCheckpoint({ folder, out });
    assertEquals(refusal, undefined);
    return await read(await Written.read(out));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("convert: pairs SmolLM3's query rows and keeps its values", async () => {
  await converted(SEPARATE, SMOLLM3, (written) => {
    assertEquals(buildPlan(written.gguf).architecture, "smollm3");
    const [q, source] = [
      written.values("blk.0.attn_q.weight"),
      SEPARATE.values.get("model.layers.0.self_attn.q_proj.weight")!,
    ];
    // Row 1 of the file forms a pair with row 0: it is the checkpoint's row HEAD_DIM / 2.
    const half = HEAD_DIM / 2 * HIDDEN;
    assertEquals(q.slice(HIDDEN, 2 * HIDDEN), source.slice(half, half + HIDDEN));
    const v = "model.layers.0.self_attn.v_proj.weight";
    assertEquals(written.values("blk.0.attn_v.weight"), SEPARATE.values.get(v));
  });
});

Deno.test("convert: turns Mistral into architecture llama", async () => {
  await converted(SEPARATE, MISTRAL, ({ gguf }) => assertEquals(buildPlan(gguf).architecture, "llama"));
});

Deno.test("convert: writes Granite's multipliers", async () => {
  await converted(SEPARATE, GRANITE, ({ gguf }) => {
    assertEquals(buildPlan(gguf).architecture, "granite");
    const keys = ["embedding_scale", "residual_scale", "attention.scale", "logit_scale"];
    assertEquals(keys.map((key) => gguf.metadata.getNumber(`granite.${key}`)), [12, 0.25, 0.125, 8]);
  });
});

Deno.test("convert: reads EXAONE's tensor names, keeps its rows and applies Llama 3's rotary factors", async () => {
  await converted(EXAONE_TENSORS, EXAONE, async (written) => {
    const { gguf } = written;
    const plan = buildPlan(gguf, await readRopeFactors(gguf));
    const turns = plan.ops.flatMap((op) => op.op === "rope_append" ? [op.interleaved] : []);
    assertEquals([plan.architecture, turns], ["exaone", [false]]);
    for (
      const [tensor, module] of [
        ["attn_q", "self_attn.q_proj"],
        ["attn_k", "self_attn.k_proj"],
        ["attn_output", "self_attn.o_proj"],
        ["attn_norm", "input_layernorm"],
        ["ffn_norm", "post_attention_layernorm"],
        ["ffn_gate", "mlp.gate_proj"],
        ["ffn_up", "mlp.up_proj"],
        ["ffn_down", "mlp.down_proj"],
      ]
    ) {
      const source = SEPARATE.values.get(`model.layers.0.${module}.weight`);
      assertEquals(written.values(`blk.0.${tensor}.weight`), source, tensor);
    }
    assertEquals(written.values("output_norm.weight"), SEPARATE.values.get("model.norm.weight"));
    assertEquals(gguf.metadata.getNumber("exaone.attention.layer_norm_rms_epsilon"), Math.fround(1e-5));
    assertEquals(written.values("rope_freqs.weight").at(-1), 8);
  });
});

Deno.test("convert: splits InternLM 2's query, key and value rows into Llama's tensors", async () => {
  const llamas = await converted(SEPARATE, { ...DECODER, model_type: "llama" }, (written) => written);
  await converted(INTERN_TENSORS, INTERN, (written) => {
    assertEquals(buildPlan(written.gguf).architecture, "internlm2");
    assertEquals([...written.gguf.tensors.keys()].sort(), [...llamas.gguf.tensors.keys()].sort());
    for (const name of llamas.gguf.tensors.keys()) {
      assertEquals(written.values(name), llamas.values(name), name);
    }
  });
});

Deno.test("convert: writes Arcee without gates and with YaRN's magnitude", async () => {
  await converted(UNGATED, ARCEE, ({ gguf }) => {
    const plan = buildPlan(gguf);
    assertEquals(plan.architecture, "arcee");
    assertAlmostEquals(plan.rope[0].magnitude, 0.1 * Math.log(20) + 1, 1e-6);
  });
});

const PANGU = { ...DECODER, model_type: "PanguEmbedded", bias: true, rope_theta: undefined };

Deno.test("convert: writes biases of all attention matrices of openPangu Embedded", async () => {
  const rows = { q: HEADS * HEAD_DIM, k: KV_HEADS * HEAD_DIM, v: KV_HEADS * HEAD_DIM, o: HIDDEN };
  const biases = Object.entries(rows).map(([part, length], i) => {
    const values = new Float32Array(length).fill(1 + i);
    return [`model.layers.0.self_attn.${part}_proj.bias`, storeFloats("BF16", [length], values)] as const;
  });
  const biased = { ...SEPARATE, tensors: new Map([...SEPARATE.tensors, ...biases]) };
  await converted(biased, PANGU, (written) => {
    const { gguf } = written;
    assertEquals(buildPlan(gguf).architecture, "pangu-embedded");
    assertEquals(gguf.metadata.getNumber("pangu-embedded.rope.freq_base"), 16_000_000);
    const first = ["q", "k", "v", "output"].map((part) => written.values(`blk.0.attn_${part}.bias`)[0]);
    assertEquals(first, [1, 2, 3, 4]);
  });
});

Deno.test("convert: writes MiniCPM's scales and LongRoPE factors", async () => {
  await converted(SEPARATE, MINICPM, async ({ gguf }) => {
    const plan = buildPlan(gguf, await readRopeFactors(gguf));
    assertEquals([plan.architecture, plan.rope[0].long?.beyond], ["minicpm", 1024]);
    const keys = ["embedding_scale", "residual_scale", "logit_scale", "rope.scaling.attn_factor"];
    assertEquals(keys.map((key) => gguf.metadata.getNumber(`minicpm.${key}`)), [12, 1.5, HIDDEN / 256, 1]);
    assertEquals(gguf.metadata.getString("minicpm.rope.scaling.type"), "longrope");
  });
});

Deno.test("convert: keeps Phi-3's fused matrices and writes LongRoPE's factors and magnitude", async () => {
  await converted(FUSED, PHI3, async (written) => {
    const { gguf } = written;
    assertEquals(buildPlan(gguf, await readRopeFactors(gguf)).rope[0].long?.beyond, 256);
    const qkv = FUSED.values.get("model.layers.0.self_attn.qkv_proj.weight");
    assertEquals(written.values("blk.0.attn_qkv.weight"), qkv);
    const gateUp = FUSED.values.get("model.layers.0.mlp.gate_up_proj.weight");
    assertEquals(written.values("blk.0.ffn_up.weight"), gateUp);
    assertEquals([...written.values("rope_factors_short.weight")], FACTORS);
    const magnitude = Math.sqrt(1 + Math.log(4) / Math.log(256));
    assertAlmostEquals(gguf.metadata.getNumber("phi3.rope.scaling.attn_factor"), magnitude, 1e-6);
  });
});

Deno.test("convert: reads Phi-3's original context from the rotary keys of newer files", async () => {
  const { original_max_position_embeddings, rope_scaling: { type, ...factors }, ...rest } = PHI3;
  const rope_parameters = {
    rope_type: type,
    rope_theta: 10_000,
    original_max_position_embeddings,
    ...factors,
  };
  await converted(FUSED, { ...rest, rope_parameters }, async ({ gguf }) => {
    assertEquals(buildPlan(gguf, await readRopeFactors(gguf)).rope[0].long?.beyond, 256);
    const magnitude = Math.sqrt(1 + Math.log(4) / Math.log(256));
    assertAlmostEquals(gguf.metadata.getNumber("phi3.rope.scaling.attn_factor"), magnitude, 1e-6);
  });
});

Deno.test("convert: ties the embedding when config.json lacks the key and the checkpoint lacks an output matrix", async () => {
  const { tie_word_embeddings: _, ...config } = SMOLLM3;
  await converted(SEPARATE, config, ({ gguf }) => assertEquals(gguf.tensors.has("output.weight"), false));
  const head = [VOCABULARY, HIDDEN];
  const zeros = storeFloats("BF16", head, new Float32Array(VOCABULARY * HIDDEN));
  const untied = { ...SEPARATE, tensors: new Map([...SEPARATE.tensors, ["lm_head.weight", zeros]]) };
  await converted(untied, config, ({ gguf }) => assertEquals(gguf.tensors.has("output.weight"), true));
});

const REFUSED: readonly (readonly [what: string, config: Record<string, unknown>, key: string])[] = [
  ["SmolLM3 with positions everywhere", { ...SMOLLM3, no_rope_layer_interval: 5 }, "no_rope_layer_interval"],
  ["SmolLM3 without positions elsewhere", { ...SMOLLM3, no_rope_layers: [0] }, "no_rope_layers"],
  ["Mistral with a window", { ...MISTRAL, sliding_window: 4096 }, "sliding_window"],
  ["Granite with a multiplier of 0", { ...GRANITE, residual_multiplier: 0 }, "residual_multiplier"],
  [
    "LongRoPE in another model",
    { ...GRANITE, rope_scaling: PHI3.rope_scaling },
    "rope_scaling.type",
  ],
  [
    "LongRoPE without the original context",
    { ...PHI3, original_max_position_embeddings: null },
    "original_max_position_embeddings",
  ],
  ["Arcee with another activation", { ...ARCEE, hidden_act: "silu" }, "hidden_act"],
  ["EXAONE with another activation", { ...EXAONE, activation_function: "gelu" }, "activation_function"],
  ["EXAONE without a count of layers", { ...EXAONE, num_layers: undefined }, "num_layers"],
  [
    "Llama 3's scaling in another model",
    { ...GRANITE, rope_scaling: EXAONE.rope_scaling },
    "rope_scaling.rope_type",
  ],
  ["InternLM 2 with biases", { ...INTERN, bias: true }, "bias"],
  ["openPangu Embedded without biases", { ...PANGU, bias: false }, "bias"],
  ["MiniCPM without its base", { ...MINICPM, dim_model_base: undefined }, "dim_model_base"],
  [
    "LongRoPE with too few factors",
    { ...PHI3, rope_scaling: { ...PHI3.rope_scaling, long_factor: [1] } },
    "rope_scaling.long_factor",
  ],
];
for (const [what, config, key] of REFUSED) {
  Deno.test(`convert: rejects ${what}`, async () => {
    const own: Record<string, typeof SEPARATE> = {
      phi3: FUSED,
      exaone: EXAONE_TENSORS,
      internlm2: INTERN_TENSORS,
    };
    const tensors = own[config.model_type as string] ?? SEPARATE;
    await assertRejects(() => converted(tensors, config, () => {}), ConvertError, key);
  });
}
