/** Seeded Mamba2 models, with and without attention, as their makers would publish them. */
import { storeFloats, tokenizerOf } from "../../../testing/checkpoints.ts";
import { attentionNames, layered, type Published } from "./model.ts";

const LAYER = "model.layers.$1.";
/** Multipliers are powers of two, so that dividing and multiplying again gives the same bits. */
const MULTIPLIERS = {
  embedding_multiplier: 4,
  lm_head_multiplier: 1 / 32,
  attention_in_multiplier: 2,
  key_multiplier: 1 / 8,
  attention_out_multiplier: 1 / 2,
  ssm_in_multiplier: 1 / 4,
  ssm_multipliers: [2, 1 / 2, 4, 1 / 16, 8],
  ssm_out_multiplier: 16,
  mlp_multipliers: [1 / 64, 32],
};
const [HEADS, HEAD_DIM, GROUPS, STATE] = [12, 64, 2, 48];

/** Returns the factors on a module's rows, as consecutive runs of rows. */
function factorsOf(module: string): (readonly [rows: number, factor: number])[] {
  const m = MULTIPLIERS;
  if (module.endsWith("mamba.in_proj")) {
    const rows = [HEADS * HEAD_DIM, HEADS * HEAD_DIM, GROUPS * STATE, GROUPS * STATE, HEADS];
    return rows.map((rows, i) => [rows, m.ssm_in_multiplier * m.ssm_multipliers[i]]);
  }
  const factors: Readonly<Record<string, number>> = {
    embed_tokens: m.embedding_multiplier,
    lm_head: m.lm_head_multiplier,
    q_proj: m.attention_in_multiplier,
    k_proj: m.attention_in_multiplier * m.key_multiplier,
    v_proj: m.attention_in_multiplier,
    o_proj: m.attention_out_multiplier,
    out_proj: m.ssm_out_multiplier,
    gate_proj: m.mlp_multipliers[0],
    down_proj: m.mlp_multipliers[1],
  };
  return [[Infinity, factors[module.split(".").at(-1)!] ?? 1]];
}

export const MAMBA2: Published = {
  architecture: "mamba2",
  config: layered({
    model_type: "mamba2",
    num_heads: 16,
    head_dim: 32,
    n_groups: 2,
    state_size: 48,
    conv_kernel: 4,
    expand: 2,
    hidden_act: "silu",
    layer_norm_epsilon: 1e-5,
    use_bias: false,
    use_conv_bias: true,
    time_step_limit: [0, "Infinity"],
    tie_word_embeddings: true,
  }),
  names: [
    [/^token_embd$/, "backbone.embeddings"],
    [/^output_norm$/, "backbone.norm_f"],
    [/^blk\.(\d+)\.attn_norm$/, "backbone.layers.$1.norm"],
    [/^blk\.(\d+)\.ssm_(in|out)$/, "backbone.layers.$1.mixer.$2_proj"],
    [/^blk\.(\d+)\.ssm_conv1d$/, "backbone.layers.$1.mixer.conv1d"],
  ],
  change(tensors, floats) {
    for (let i = 0; i < 4; i++) {
      const put = (name: string, values: Float32Array) =>
        tensors.set(`backbone.layers.${i}.mixer.${name}`, storeFloats("F32", [values.length], values));
      const own = (name: string) => floats(`blk.${i}.ssm_${name}`).values;
      put("dt_bias", own("dt.bias"));
      put("A_log", own("a").map((decay) => Math.log(-decay)));
      put("D", own("d"));
      put("norm.weight", own("norm.weight"));
    }
  },
  tokenizer: tokenizerOf("qwen3"),
  ids: ["the", [257]],
};

export const FALCON_H1: Published = {
  architecture: "falcon-h1",
  config: layered({
    ...MULTIPLIERS,
    model_type: "falcon_h1",
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    intermediate_size: 768,
    hidden_act: "silu",
    rms_norm_eps: 1e-6,
    rope_scaling: null,
    rope_theta: 1e11,
    attention_bias: false,
    mlp_bias: false,
    projectors_bias: false,
    mamba_proj_bias: false,
    mamba_conv_bias: true,
    mamba_use_mlp: true,
    mamba_rms_norm: false,
    mamba_norm_before_gate: false,
    mamba_d_ssm: HEADS * HEAD_DIM,
    mamba_n_heads: HEADS,
    mamba_d_head: HEAD_DIM,
    mamba_n_groups: GROUPS,
    mamba_d_state: STATE,
    mamba_d_conv: 4,
    mamba_expand: 2,
    tie_word_embeddings: false,
  }),
  names: [
    [/^blk\.(\d+)\.ffn_(gate|up|down)$/, `${LAYER}feed_forward.$2_proj`],
    [/^blk\.(\d+)\.ssm_(in|out)$/, `${LAYER}mamba.$2_proj`],
    [/^blk\.(\d+)\.ssm_conv1d$/, `${LAYER}mamba.conv1d`],
    [/^output_norm$/, "model.final_layernorm"],
    [/^output$/, "lm_head"],
    ...attentionNames("model."),
  ],
  change(tensors, floats) {
    for (const [name, { shape, bytes }] of [...tensors]) {
      const values = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
      const columns = shape.at(-1)!;
      let at = 0;
      for (const [rows, factor] of factorsOf(name.replace(/\.weight$/, ""))) {
        const end = Math.min(values.length, at + rows * columns);
        for (; at < end; at++) values[at] /= factor;
      }
    }
    const put = (name: string, values: Float32Array) =>
      tensors.set(name, storeFloats("F32", [values.length], values));
    for (let i = 0; i < 4; i++) {
      const [block, layer] = [`blk.${i}.`, `model.layers.${i}.`];
      put(`${layer}pre_ff_layernorm.weight`, floats(`${block}ffn_norm`).values);
      put(`${layer}mamba.dt_bias`, floats(`${block}ssm_dt.bias`).values);
      put(`${layer}mamba.D`, floats(`${block}ssm_d`).values);
      put(`${layer}mamba.A_log`, floats(`${block}ssm_a`).values.map((decay) => Math.log(-decay)));
    }
  },
  tokenizer: tokenizerOf("qwen3"),
  ids: ["the", [257]],
};
