/** Tests of mixtures of experts built on other models: optional and rejected tensors and keys. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { storeFloats } from "../../testing/checkpoints.ts";
import { COHERES } from "../../tests/convert/published/cohere.ts";
import { DEEPSEEK_V2_LITE, GLM47_FLASH, MISTRAL_SMALL_4 } from "../../tests/convert/published/latent.ts";
import {
  DEEPSEEK_MOE,
  DOTS1,
  GLM45,
  GRANITE_MOE,
  GRANITE_SWA,
  HUNYUAN_A13B,
  HY3,
  K_EXAONE,
  LING2,
  MELLUM2,
  MINIMAX_M2,
  OLMOE,
  QWEN2_MOE,
  QWEN3_VL_MOE,
  TRINITY,
} from "../../tests/convert/published/mixtures.ts";
import type { Config, Published } from "../../tests/convert/published/model.ts";
import { writePublished } from "../../tests/convert/published/write.ts";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { everyNth, fullTier } from "../../testing/tier.ts";
import { convertCheckpoint, ConvertError, type ConvertReport } from "../convert.ts";
import { Written } from "../testing.ts";

/** Converts a published model with changed keys and tensors. */
async function converted(
  of: Published,
  config: Config,
  change: Published["change"] = () => {},
): Promise<{ readonly written: Written; readonly report: ConvertReport }> {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    const text_config = of.config.text_config && { ...of.config.text_config, ...config };
    await writePublished(folder, {
      ...of,
      config: { ...of.config, ...config, ...text_config ? { text_config } : {} },
      change(tensors, floats) {
        of.change?.(tensors, floats);
        change(tensors, floats);
      },
    });
    const out = join(folder, "out.gguf");
    const report = await convertCheckpoint({ folder, out });
    return { report, written: await Written.read(out) };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

fullTier.test("convert: leaves out GLM-4.5's layers beyond the count in config.json", async () => {
  const behind: Published["change"] = (tensors) => {
    for (const name of ["eh_proj", "enorm", "mlp.experts.0.up_proj", "shared_head.norm"]) {
      tensors.set(`model.layers.4.${name}.weight`, storeFloats("F32", [4], new Float32Array(4)));
    }
  };
  const { report, written } = await converted(GLM45, {}, behind);
  assertEquals(report.leftOut, { "multi-token prediction": 4 });
  assertEquals(written.gguf.metadata.getCount("glm4moe.block_count"), 4);
  const none = { num_nextn_predict_layers: 0 };
  const error = await assertRejects(() => converted(GLM45, none, behind), ConvertError);
  assert(error.message.includes("model.layers.4.eh_proj.weight"), error.message);
});

Deno.test("convert: accepts GLM-4.5 Air's heads without norms", async () => {
  const { written } = await converted(GLM45, { use_qk_norm: false }, (tensors) => {
    for (const name of tensors.keys()) if (/self_attn\.[qk]_norm/.test(name)) tensors.delete(name);
  });
  assertEquals(written.gguf.tensors.has("blk.0.attn_q_norm.weight"), false);
  assertEquals(buildPlan(written.gguf).architecture, "glm4moe");
});

Deno.test("convert: accepts Granite's experts without a shared expert", async () => {
  const config = { model_type: "granitemoe", shared_intermediate_size: undefined };
  const { written } = await converted(GRANITE_MOE, config, (tensors) => {
    for (const name of tensors.keys()) if (name.includes("shared_mlp")) tensors.delete(name);
  });
  assertEquals(written.gguf.metadata.has("granitemoe.expert_shared_feed_forward_length"), false);
  assertEquals(buildPlan(written.gguf).architecture, "granitemoe");
});

fullTier.test("convert: writes DeepSeek V3's expert groups and a tenth of YaRN's multiplier", async () => {
  const { written: { gguf } } = await converted(GLM47_FLASH, {
    model_type: "deepseek_v3",
    n_group: 4,
    topk_group: 2,
    rope_scaling: {
      type: "yarn",
      factor: 40,
      original_max_position_embeddings: 51,
      mscale: 1,
      mscale_all_dim: 1,
    },
  });
  const routes = buildPlan(gguf).ops.flatMap((op) => op.op === "route" ? [[op.groups, op.groupsUsed]] : []);
  assertEquals(routes, Array(3).fill([4, 2]));
  const multiplier = gguf.metadata.getNumber("deepseek2.rope.scaling.yarn_log_multiplier");
  assertEquals(multiplier, Math.fround(0.1));
});

/** Impossible keys, and keys that would change the computation, for each model. */
const KEYS: readonly (readonly [what: string, of: Published, changes: Config])[] = [
  ["DeepSeek V2 Lite", DEEPSEEK_V2_LITE, { n_group: 2, scoring_func: "other", moe_layer_freq: 2 }],
  ["DeepSeekMoE", DEEPSEEK_MOE, {
    scoring_func: "sigmoid",
    norm_topk_prob: true,
    moe_layer_freq: 2,
    first_k_dense_replace: 5,
    attention_bias: true,
  }],
  ["Mistral Small 4", MISTRAL_SMALL_4, {
    rope_interleave: false,
    scoring_func: "other",
    n_group: 2,
    rope_parameters: { rope_type: "yarn", factor: 40, partial_rotary_factor: 1 },
  }],
  ["dots.llm1", DOTS1, { n_group: 2, max_window_layers: 2, first_k_dense_replace: 5 }],
  ["GLM-4.7 Flash", GLM47_FLASH, { rope_interleave: false, kv_lora_rank: 0, q_lora_rank: 0 }],
  ["GLM-4.5", GLM45, {
    n_group: 2,
    num_experts_per_tok: 13,
    first_k_dense_replace: 5,
    rope_scaling: { type: "yarn", factor: 4 },
  }],
  ["Granite's mixture", GRANITE_MOE, { num_local_experts: 0 }],
  ["Granite with windows", GRANITE_SWA, {
    layer_rope_theta: [0, 1e4, 1e4, 1e5, 0, 1e4],
    layer_types: ["full_attention"],
    sliding_window: undefined,
  }],
  ["Hunyuan-A13B", HUNYUAN_A13B, {
    use_qk_norm: false,
    use_cla: true,
    num_shared_expert: [1, 1, 2, 1],
    moe_topk: [13, 13, 13, 13],
    moe_layer_num_skipped: 1,
  }],
  ["Hy3", HY3, {
    qk_norm: false,
    mlp_layer_types: ["dense", "sparse", "dense", "sparse"],
    num_experts_per_tok: 13,
  }],
  ["K-EXAONE", K_EXAONE, {
    n_group: 2,
    layer_types: ["full_attention"],
    sliding_window: undefined,
    first_k_dense_replace: 6,
  }],
  ["Ling", LING2, {
    score_function: undefined, // versions before 2.0
    use_qkv_bias: true,
    use_qk_norm: false,
    num_shared_experts: 2,
    topk_group: 5,
  }],
  ["Mellum 2", MELLUM2, {
    layer_types: Array(4).fill("full_attention"),
    mlp_layer_types: ["dense", ...Array(4).fill("sparse")],
    use_sliding_window: false,
    sliding_window: null,
    norm_topk_prob: false,
    num_experts_per_tok: 13,
    rope_parameters: { full_attention: { rope_theta: 5e5 } },
  }],
  ["MiniMax M2", MINIMAX_M2, {
    attn_type_list: [0, 0, 0, 1],
    scoring_func: "softmax",
    use_routing_bias: false,
    qk_norm_type: "per_head",
    shared_intermediate_size: 256,
    rotary_dim: 65,
    num_experts_per_tok: 13,
  }],
  ["North Mini", COHERES["North Mini"], {
    expert_selection_fn: undefined,
    first_k_dense_replace: 7,
    layer_types: ["full_attention"],
    mlp_layer_types: ["sparse", "dense", "sparse", "sparse", "sparse", "sparse"],
    prefix_dense_sliding_window_pattern: 4,
    shared_expert_combination_strategy: "sum",
    sliding_window: undefined,
  }],
  ["Qwen2's mixture", QWEN2_MOE, {
    norm_topk_prob: true,
    decoder_sparse_step: 2,
    qkv_bias: false,
    shared_expert_intermediate_size: 0,
  }],
  ["OLMoE", OLMOE, { clip_qkv: 8, norm_topk_prob: true }],
  ["Qwen3-VL's mixture", QWEN3_VL_MOE, { mlp_only_layers: [0] }],
  ["Trinity", TRINITY, {
    mup_enabled: undefined,
    score_func: "softmax",
    n_group: 4,
    global_attn_every_n_layers: 3,
    layer_types: Array(5).fill("sliding_attention"),
    sliding_window: null,
    num_dense_layers: 6,
    num_experts_per_tok: 13,
    num_shared_experts: undefined,
    route_scale: -1,
  }],
];
for (const [what, of, changes] of everyNth(8, KEYS)) {
  Deno.test(`convert: rejects unsupported keys of ${what}, and the message names the key`, async () => {
    const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
    try {
      await writePublished(folder, of);
      for (const [key, value] of Object.entries(changes)) {
        const { text_config, ...config } = of.config;
        const changed = text_config
          ? { ...config, text_config: { ...text_config, [key]: value } }
          : { ...config, [key]: value };
        await Deno.writeTextFile(join(folder, "config.json"), JSON.stringify(changed));
        const convert = () => convertCheckpoint({ folder, out: join(folder, "out.gguf") });
        const { message } = await assertRejects(convert, ConvertError, undefined, key);
        assert(message.includes(key), `${key}: ${message}`);
      }
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}

fullTier.test("convert: accepts Mellum 2's window layers if their rotary keys differ from the others only by YaRN", async () => {
  const ropes = MELLUM2.config.rope_parameters as Record<string, Config>;
  for (const change of [{ rope_theta: 1e4 }, { rope_type: "yarn" }]) {
    const sliding_attention = { ...ropes.sliding_attention, ...change };
    const config = { rope_parameters: { ...ropes, sliding_attention } };
    const { message } = await assertRejects(() => converted(MELLUM2, config), ConvertError);
    assert(message.includes(`rope_parameters.sliding_attention.${Object.keys(change)[0]}`), message);
  }
});

const TENSORS: readonly (readonly [what: string, of: Published, name: string])[] = [
  ["GLM-4.7 Flash without a part of attention", GLM47_FLASH, "model.layers.0.self_attn.kv_b_proj.weight"],
  ["GLM-4.5 without a bias of the choice", GLM45, "model.layers.1.mlp.gate.e_score_correction_bias"],
  ["K-EXAONE without a bias of the choice", K_EXAONE, "model.layers.1.mlp.e_score_correction_bias"],
  ["Hy3 without a router", HY3, "model.layers.1.mlp.router.gate.weight"],
  ["Ling 2.0 without an expert", LING2, "model.layers.1.mlp.experts.3.gate_proj.weight"],
  [
    "MiniMax M2 without a bias of the choice",
    MINIMAX_M2,
    "model.layers.0.block_sparse_moe.e_score_correction_bias",
  ],
  ["Trinity without a gate", TRINITY, "model.layers.0.self_attn.gate_proj.weight"],
  ["Qwen2's mixture without a gate", QWEN2_MOE, "model.layers.1.mlp.shared_expert_gate.weight"],
  [
    "Command A+ without a shared expert",
    COHERES["Command A+"],
    "model.layers.2.mlp.shared_experts.up_proj.weight",
  ],
  ["OLMoE without a norm", OLMOE, "model.layers.0.self_attn.k_norm.weight"],
  [
    "Qwen3-VL's mixture without a matrix",
    QWEN3_VL_MOE,
    "model.language_model.layers.2.mlp.experts.down_proj",
  ],
];
for (const [what, of, name] of everyNth(8, TENSORS)) {
  Deno.test(`convert: rejects ${what}, and the message names the tensor`, async () => {
    const change: Published["change"] = (tensors) => void tensors.delete(name);
    const error = await assertRejects(() => converted(of, {}, change), ConvertError);
    assert(error.message.includes(name), error.message);
  });
}
