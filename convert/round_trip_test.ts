/**
 * Converts seeded models in their publishers' layout. The result must equal the seeded file, tensor by
 * tensor, with the same plan.
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { storeFloats } from "../testing/checkpoints.ts";
import { writePublished } from "../tests/convert/published/write.ts";
import type { Config, Published } from "../tests/convert/published/model.ts";
import { MAMBA2 } from "../tests/convert/published/hybrids.ts";
import { PUBLISHED } from "../tests/convert/published/registry.ts";
import { buildPlan, readRopeFactors } from "../engine/architectures/registry.ts";
import { printPlan } from "../engine/plan/print.ts";
import { createTokenizer } from "../engine/tokenizer/tokenizer.ts";
import { everyNth, fullTier } from "../testing/tier.ts";
import { convertCheckpoint, ConvertError } from "./convert.ts";
import { Written } from "./testing.ts";

/** Converts a published model and passes the seeded and the written file to `test`. */
async function roundTrip(
  of: Published,
  test: (seeded: Written, converted: Written) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    const from = await writePublished(folder, of);
    const out = join(folder, "out.gguf");
    const { refusal } = await convertCheckpoint({ folder, out });
    assertEquals(refusal, undefined);
    await test(from, await Written.read(out));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const planOf = async ({ gguf }: Written) => buildPlan(gguf, await readRopeFactors(gguf));

for (const [name, of] of everyNth(30, Object.entries(PUBLISHED))) {
  Deno.test(`convert: reproduces the seeded file of ${name}`, async () => {
    await roundTrip(of, async (seeded, converted) => {
      assertEquals([...converted.gguf.tensors.keys()].sort(), [...seeded.gguf.tensors.keys()].sort());
      for (const [tensor, { shape }] of seeded.gguf.tensors) {
        assertEquals(converted.gguf.tensors.get(tensor)!.shape, shape, tensor);
        if (of.ownFactors && tensor.startsWith("rope_freqs.") || of.computed?.test(tensor)) continue;
        const [ours, theirs] = [seeded.values(tensor), converted.values(tensor)];
        // Rounding differs where 1 is subtracted and added, or a logarithm is taken.
        const rounded = of.shiftedNorms && tensor.includes("norm") || tensor.endsWith(".ssm_a");
        const far = (value: number) => rounded ? 1e-6 * Math.max(1, Math.abs(value)) : 0;
        assert(ours.every((value, i) => Math.abs(value - theirs[i]) <= far(value)), tensor);
      }
      const [a, b] = [await planOf(seeded), await planOf(converted)];
      assertEquals(b.architecture, of.becomes ?? a.architecture);
      const sorted = (text: string) => text.replace(/^plan \S+:/, "").replaceAll(/\d+ tensors/g, "");
      assertEquals(sorted(printPlan(b)), sorted(printPlan(a)));
      if (!of.ownFactors) assertEquals(b.rope, a.rope);
      const tokenizer = createTokenizer(converted.gguf.metadata);
      assertEquals(tokenizer.encode(of.ids[0], { addSpecial: true }), of.ids[1]);
    });
  });
}

Deno.test("convert: writes the number of deepstack layers for the text part of Qwen3-VL", async () => {
  await roundTrip(PUBLISHED["Qwen3-VL"], (_, { gguf }) => {
    assertEquals(gguf.metadata.getCount("qwen3vl.n_deepstack_layers"), 2);
    return Promise.resolve();
  });
});

const STARCODER = {
  ...PUBLISHED.gpt2,
  config: { ...PUBLISHED.gpt2.config, model_type: "gpt_bigcode" },
};
const REFUSED: readonly (readonly [what: string, of: Published, config: Config, key: string])[] = [
  ["StableLM 2 12B, whose heads have norms", PUBLISHED["StableLM 2"], { qk_layernorm: true }, "qk_layernorm"],
  ["GPT-2 with attention scores scaled by the layer index", PUBLISHED.gpt2, {
    ...PUBLISHED.gpt2.config,
    scale_attn_by_inverse_layer_idx: true,
  }, "scale_attn_by_inverse_layer_idx"],
  ["StarCoder with several KV heads", STARCODER, { ...STARCODER.config, multi_query: false }, "multi_query"],
  ["Muse Glimmer with rotary positions in full layers", PUBLISHED["muse-glimmer"], {
    ...PUBLISHED["muse-glimmer"].config,
    layer_rope_theta: Array(5).fill(5e5),
  }, "layer_rope_theta"],
  ["GLM-5 with an unknown indexer type", PUBLISHED["GLM-5"], {
    ...PUBLISHED["GLM-5"].config,
    indexer_types: ["none", "shared"],
  }, "indexer_types"],
  ["Laguna with gates per head and gates per element", PUBLISHED.Laguna, {
    ...PUBLISHED.Laguna.config,
    gating_types: ["per_head", "per_element", "per_head", "per_head", "per_head"],
  }, "gating"],
  ["MiMo V2 with sinks in full layers", PUBLISHED["MiMo V2 Flash"], {
    ...PUBLISHED["MiMo V2 Flash"].config,
    add_full_attention_sink_bias: true,
  }, "add_full_attention_sink_bias"],
  ["MiniMax M3 with another activation", PUBLISHED["MiniMax M3"], { swiglu_alpha: 1.5 }, "swiglu_alpha"],
  ["MiniMax M3 with an indexer in the dense layer", PUBLISHED["MiniMax M3"], {
    layer_types: Array(2).fill("minimax_m3_sparse"),
    sparse_attention_config: null,
    index_n_heads: 2,
    index_head_dim: 64,
    index_topk_blocks: 16,
    index_block_size: 128,
    index_local_blocks: 1,
  }, "layer_types"],
  ["Llama 4 with rotary positions in all layers", PUBLISHED["Llama 4"], {
    ...PUBLISHED["Llama 4"].config,
    no_rope_layers: [1, 1, 1, 1, 1],
  }, "no_rope_layers"],
  ["Step 3.5 with rotation of whole heads in full layers", PUBLISHED["Step 3.5"], {
    ...PUBLISHED["Step 3.5"].config,
    partial_rotary_factors: Array(7).fill(1),
  }, "partial_rotary_factor"],
  ["SmallThinker with a window in the first layer", PUBLISHED.SmallThinker, {
    ...PUBLISHED.SmallThinker.config,
    sliding_window_layout: Array(5).fill(1),
  }, "sliding_window_layout"],
  ["Kimi Linear with convolutions of 3 taps", PUBLISHED["Kimi Linear"], {
    ...PUBLISHED["Kimi Linear"].config,
    linear_conv_kernel_dim: 3,
  }, "linear_conv_kernel_dim"],
  ["Ling 3.0 with unbounded decays", PUBLISHED["Ling 3.0"], {
    ...PUBLISHED["Ling 3.0"].config,
    kda_safe_gate: false,
  }, "kda_safe_gate"],
  ["Mamba2 with biases", MAMBA2, { ...MAMBA2.config, use_bias: true }, "use_bias"],
  ["Mamba2 of another width", MAMBA2, { ...MAMBA2.config, expand: 4 }, "expand"],
  ["Phi with another activation", PUBLISHED["Phi-2"], { hidden_act: "gelu" }, "hidden_act"],
  [
    "Nanbeige whose passes share keys and values",
    PUBLISHED["Nanbeige 4.2"],
    { loop_share_kv: true },
    "loop_share_kv",
  ],
  ["Gemma 4 whose full layers turn otherwise", PUBLISHED["Gemma 4"], {
    rope_parameters: {
      full_attention: { rope_type: "default", rope_theta: 1e6 },
      sliding_attention: { rope_type: "default", rope_theta: 1e4 },
    },
  }, "rope_type"],
  [
    "Gemma 4 without kinds of layers",
    PUBLISHED["Gemma 4"],
    { layer_types: ["full_attention"] },
    "layer_types",
  ],
  [
    "Gemma 4 whose layers all read another's",
    PUBLISHED["Gemma 4"],
    { num_kv_shared_layers: 6 },
    "num_kv_shared_layers",
  ],
  ["Gemma 4 that chooses more experts than there are", PUBLISHED["Gemma 4 with experts"], {
    top_k_experts: 13,
  }, "top_k_experts"],
  [
    "Gemma 4 with another activation",
    PUBLISHED["Gemma 4"],
    { hidden_activation: "silu" },
    "hidden_activation",
  ],
  ["Gemma 3n with another activation", PUBLISHED["Gemma 3n"], {
    hidden_activation: "silu",
  }, "hidden_activation"],
  ["Gemma 3n with fewer streams", PUBLISHED["Gemma 3n"], { altup_num_inputs: 2 }, "altup_num_inputs"],
  ["Gemma 3n with another active stream", PUBLISHED["Gemma 3n"], { altup_active_idx: 1 }, "altup_active_idx"],
  [
    "Gemma 3n with a first stream that is not scaled",
    PUBLISHED["Gemma 3n"],
    { altup_correct_scale: false },
    "altup_correct_scale",
  ],
  ["Gemma 3n with gates that are all cut", PUBLISHED["Gemma 3n"], {
    activation_sparsity_pattern: Array(6).fill(1),
  }, "activation_sparsity_pattern"],
  ["Gemma 3n with a width too few", PUBLISHED["Gemma 3n"], {
    intermediate_size: Array(5).fill(512),
  }, "intermediate_size"],
  ["Gemma 3n whose layers all read another's", PUBLISHED["Gemma 3n"], {
    num_kv_shared_layers: 6,
  }, "num_kv_shared_layers"],
  ["Ministral 3 with a window", PUBLISHED["Ministral 3"], { sliding_window: 4096 }, "sliding_window"],
  ["Ministral 3 with one of two multipliers", PUBLISHED["Ministral 3"], {
    rope_parameters: {
      rope_type: "yarn",
      factor: 16,
      original_max_position_embeddings: 64,
      mscale_all_dim: 1,
    },
  }, "mscale"],
];
for (const [what, of, config, key] of everyNth(15, REFUSED)) {
  Deno.test(`convert: ${what} is refused, and the message names the key`, async () => {
    const text_config = { ...of.config.text_config as Config, ...config };
    const changed = { ...of, config: { ...of.config, text_config } };
    await assertRejects(() => roundTrip(changed, async () => {}), ConvertError, key);
  });
}

Deno.test("convert: gives Gemma 3n's tokens beyond the per-layer table its first row, and accepts layers without sparse gates", async () => {
  const of = PUBLISHED["Gemma 3n"];
  const name = "model.language_model.embed_tokens_per_layer.weight";
  const [rows, columns, beyond] = [500, 6 * 256, 3];
  const text_config = {
    ...of.config.text_config as Config,
    vocab_size_per_layer_input: rows - beyond,
    activation_sparsity_pattern: [0.95, 0, 0.5, 0, 0, 0.05],
  };
  const smaller: Published = {
    ...of,
    config: { ...of.config, text_config },
    change(tensors, floats) {
      of.change!(tensors, floats);
      const { values } = floats("per_layer_token_embd.weight");
      const table = values.slice(0, (rows - beyond) * columns);
      tensors.set(name, storeFloats("F32", [rows - beyond, columns], table));
    },
  };
  await roundTrip(smaller, async (seeded, converted) => {
    const [before, after] = [seeded, converted].map((file) => file.values("per_layer_token_embd.weight"));
    const whole = (rows - beyond) * columns;
    assertEquals(after.subarray(0, whole), before.subarray(0, whole));
    for (let row = rows - beyond; row < rows; row++) {
      assertEquals(after.subarray(row * columns, (row + 1) * columns), before.subarray(0, columns));
    }
    const cuts = converted.gguf.metadata.getNumbers("gemma3n.activation_sparsity_scale")!;
    const wanted = [1.6448536269514722, -Infinity, 0, -Infinity, -Infinity, -1.6448536269514722];
    assertEquals(Array.from(cuts), wanted.map(Math.fround));
    await planOf(converted);
  });
});

const OTHER_CONFIGS: readonly (readonly [what: string, of: Published, config: Config, key: string])[] = [
  [
    "Llama Nemotron Embed pooled in no known way",
    PUBLISHED["Llama Nemotron Embed"],
    { pooling: "weighted_avg" },
    "pooling",
  ],
  ["OLMo 2 with a window", PUBLISHED["OLMo 2"], { sliding_window: 40 }, "sliding_window"],
  ["OLMo 3 without one", PUBLISHED["OLMo 3"], { sliding_window: null }, "sliding_window"],
  [
    "OLMo 3 with windows in other layers",
    PUBLISHED["OLMo 3"],
    { layer_types: Array(5).fill("sliding_attention") },
    "layer_types",
  ],
  ["OLMo 3 with a magnitude that is not YaRN's", PUBLISHED["OLMo 3"], {
    rope_scaling: { ...PUBLISHED["OLMo 3"].config.rope_scaling as Config, attention_factor: 1 },
  }, "rope_scaling.attention_factor"],
  ["OLMo 3 whose kinds of layers turn otherwise", PUBLISHED["OLMo 3"], {
    rope_parameters: { full_attention: { rope_theta: 5e5 }, sliding_attention: { rope_theta: 1e4 } },
  }, "rope_parameters"],
  ["Command R7B with another pattern", PUBLISHED["Command R7B"], {
    sliding_window_pattern: 2,
  }, "sliding_window_pattern"],
  ["Command R7B with windows in other layers", PUBLISHED["Command R7B"], {
    layer_types: Array(5).fill("sliding_attention"),
  }, "layer_types"],
  ["Command R7B without a window", PUBLISHED["Command R7B"], { sliding_window: null }, "sliding_window"],
  ["Command R7B that turns parts of heads", PUBLISHED["Command R7B"], { rotary_pct: 0.5 }, "rotary_pct"],
  ["StarCoder2 without biases", PUBLISHED["StarCoder2"], { use_bias: false }, "use_bias"],
  ["StarCoder2 with another activation", PUBLISHED["StarCoder2"], { hidden_act: "silu" }, "hidden_act"],
  ["Nemotron with biases", PUBLISHED["Nemotron-Mini"], { mlp_bias: true }, "mlp_bias"],
  ["Nemotron with another activation", PUBLISHED["Nemotron-Mini"], { hidden_act: "gelu" }, "hidden_act"],
  ["Nemotron with stretched positions", PUBLISHED["Nemotron-Mini"], {
    rope_scaling: { rope_type: "linear", factor: 4 },
  }, "rope_type"],
  ["Maincoder without norms of heads", PUBLISHED["Maincoder"], { use_qk_norm: false }, "use_qk_norm"],
  ["Gemma with exact GELU", PUBLISHED["Gemma"], { hidden_activation: "gelu" }, "hidden_activation"],
  ["Gemma with another activation", PUBLISHED["Gemma"], { hidden_act: "silu" }, "hidden_act"],
  [
    "Gemma that attends in both directions",
    PUBLISHED["Gemma"],
    { use_bidirectional_attention: true },
    "use_bidirectional_attention",
  ],
  ["Command R without a factor", PUBLISHED["Command R"], { logit_scale: null }, "logit_scale"],
  ["Command R with stretched positions", PUBLISHED["Command R"], {
    rope_scaling: { rope_type: "linear", factor: 4 },
  }, "rope_type"],
  [
    "EXAONE 4 that leaves its window to a default",
    PUBLISHED["EXAONE 4"],
    { sliding_window: undefined },
    "sliding_window",
  ],
  [
    "EXAONE 4 with another pattern",
    PUBLISHED["EXAONE 4"],
    { sliding_window: 40, sliding_window_pattern: "LG" },
    "sliding_window_pattern",
  ],
];
for (const [what, of, config, key] of everyNth(15, OTHER_CONFIGS)) {
  Deno.test(`convert: ${what} is refused, and the message names the key`, async () => {
    const changed = { ...of, config: { ...of.config, ...config } };
    await assertRejects(() => roundTrip(changed, async () => {}), ConvertError, key);
  });
}

fullTier.test("convert: rejects Llama Nemotron layers that an architecture search cannot produce", async () => {
  const of = PUBLISHED["Llama Nemotron"];
  const blocks = of.config.block_configs as { attention: Config; ffn: Config }[];
  const changes: readonly unknown[] = [
    blocks.slice(1),
    "none",
    blocks.with(0, { attention: { n_heads_in_group: 3 }, ffn: blocks[0].ffn }),
    blocks.with(0, { attention: { n_heads_in_group: "2" }, ffn: blocks[0].ffn }),
    blocks.with(0, { attention: blocks[0].attention, ffn: { ffn_mult: -1 } }),
    blocks.with(0, { attention: blocks[0].attention, ffn: { ffn_mult: 1e12 } }),
    blocks.with(0, { attention: blocks[0].attention, ffn: { replace_with_linear: true } }),
    [...blocks.slice(1), null],
  ];
  for (const block_configs of changes) {
    const changed = { ...of, config: { ...of.config, block_configs } };
    await assertRejects(() => roundTrip(changed, async () => {}), ConvertError, "block_configs");
  }
});

Deno.test("convert: requires XLM-RoBERTa's position table to exceed its unread rows", async () => {
  const of = PUBLISHED["XLM-RoBERTa"];
  const changed = { ...of, config: { ...of.config, pad_token_id: 600 } };
  await assertRejects(() => roundTrip(changed, async () => {}), ConvertError, "max_position_embeddings");
});

Deno.test("convert: rejects dense matrices after the pooling in other models", async () => {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    await writePublished(folder, PUBLISHED["BERT"]);
    const modules = [{ type: "x.Transformer", path: "" }, { type: "x.Dense", path: "2_Dense" }];
    await Deno.writeTextFile(join(folder, "modules.json"), JSON.stringify(modules));
    const convert = () => convertCheckpoint({ folder, out: join(folder, "out.gguf") });
    await assertRejects(convert, ConvertError, "Dense");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("convert: reads ModernBERT's newer rotary base keys per kind of layer", async () => {
  const { global_rope_theta: _, local_rope_theta: __, ...rest } = PUBLISHED["ModernBERT"].config;
  const rope_parameters = {
    full_attention: { rope_type: "default", rope_theta: 80_000 },
    sliding_attention: { rope_type: "default", rope_theta: 90_000 },
  };
  const layer_types = Array.from({ length: 4 }, (_, i) => i % 3 ? "sliding_attention" : "full_attention");
  const newer = { ...PUBLISHED["ModernBERT"], config: { ...rest, rope_parameters, layer_types } };
  await roundTrip(newer, (_, { gguf: { metadata } }) => {
    assertEquals(metadata.getNumber("modern-bert.rope.freq_base"), 80_000);
    assertEquals(metadata.getNumber("modern-bert.rope.freq_base_swa"), 90_000);
    return Promise.resolve();
  });
});

const OTHER_MODERN: Readonly<Record<string, Config>> = {
  layer_types: { layer_types: ["full_attention", "full_attention"] },
  rope_type: {
    rope_parameters: {
      full_attention: { rope_type: "yarn", rope_theta: 1e5 },
      sliding_attention: { rope_theta: 1e4 },
    },
  },
  sliding_attention: { rope_parameters: { full_attention: { rope_theta: 1e5 } } },
  classifier_pooling: { classifier_pooling: "cls" },
  classifier_bias: { classifier_pooling: "mean", classifier_bias: true },
  classifier_activation: { classifier_pooling: "mean", classifier_activation: "silu" },
};
for (const [key, config] of Object.entries(OTHER_MODERN)) {
  Deno.test(`convert: rejects ModernBERT when ${key} differs, and the message names the key`, async () => {
    const of = PUBLISHED["ModernBERT"];
    const labelled: Published = {
      ...of,
      config: { ...of.config, ...config },
      change: (tensors) => {
        const zeros = (shape: number[]) =>
          storeFloats("F32", shape, new Float32Array(shape.reduce((a, b) => a * b)));
        tensors.set("classifier.weight", zeros([2, 256])).set("classifier.bias", zeros([2]));
        tensors.set("head.dense.weight", zeros([256, 256])).set("head.norm.weight", zeros([256]));
      },
    };
    await assertRejects(() => roundTrip(labelled, async () => {}), ConvertError, key);
  });
}
