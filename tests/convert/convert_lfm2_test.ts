/** LFM2's checkpoints: a seeded model exported with Hugging Face's names must convert back to the same model. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { convertCheckpoint, ConvertError } from "../../convert/convert.ts";
import { Written } from "../../convert/testing.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { printPlan } from "../../engine/plan/print.ts";
import {
  type StoredTensor,
  storeFloats,
  tinyCheckpoint,
  writeCheckpoint,
} from "../../testing/checkpoints.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { everyNth } from "../../testing/tier.ts";

type Name = "lfm2" | "lfm2moe";
type Config = Record<string, unknown>;

/** Hugging Face's names of an LFM2 layer's tensors. Source: transformers, models/lfm2 and models/lfm2_moe. */
const LAYER: Readonly<Record<string, string>> = {
  "attn_norm.weight": "operator_norm.weight",
  "ffn_norm.weight": "ffn_norm.weight",
  "shortconv.in_proj.weight": "conv.in_proj.weight",
  "shortconv.conv.weight": "conv.conv.weight",
  "shortconv.out_proj.weight": "conv.out_proj.weight",
  "attn_q.weight": "self_attn.q_proj.weight",
  "attn_k.weight": "self_attn.k_proj.weight",
  "attn_v.weight": "self_attn.v_proj.weight",
  "attn_output.weight": "self_attn.out_proj.weight",
  "attn_q_norm.weight": "self_attn.q_layernorm.weight",
  "attn_k_norm.weight": "self_attn.k_layernorm.weight",
  "ffn_gate.weight": "feed_forward.w1.weight",
  "ffn_up.weight": "feed_forward.w3.weight",
  "ffn_down.weight": "feed_forward.w2.weight",
  "ffn_gate_inp.weight": "feed_forward.gate.weight",
  "exp_probs_b.bias": "feed_forward.expert_bias",
};
const EXPERTS: Readonly<Record<string, string>> = { gate: "w1", up: "w3", down: "w2" };

const LAYER_TYPES = ["conv", "conv", "full_attention"];
const COMMON = {
  hidden_size: 256,
  num_hidden_layers: 3,
  num_key_value_heads: 2,
  vocab_size: 500,
  max_position_embeddings: 2048,
  norm_eps: 1e-6,
  conv_L_cache: 3,
  conv_bias: false,
  layer_types: LAYER_TYPES,
};
const CONFIGS: Readonly<Record<Name, Config>> = {
  // Two thirds of 1,100, up to a multiple of 256.
  lfm2: {
    ...COMMON,
    model_type: "lfm2",
    num_attention_heads: 4,
    rope_theta: 1e6,
    block_ff_dim: 1100,
    block_auto_adjust_ff_dim: true,
    block_ffn_dim_multiplier: 1.0,
    block_multiple_of: 256,
  },
  lfm2moe: {
    ...COMMON,
    model_type: "lfm2_moe",
    num_attention_heads: 8,
    rope_theta: 5e6,
    intermediate_size: 768,
    num_dense_layers: 2,
    num_experts: 12,
    num_experts_per_tok: 3,
    moe_intermediate_size: 256,
    norm_topk_prob: true,
    use_expert_bias: true,
    routed_scaling_factor: 1.0,
    tie_word_embeddings: true,
  },
};

const MODELS = {
  lfm2: synthesize({ architecture: "lfm2", types: ["F32"], seed: 1, layers: 3 }),
  lfm2moe: synthesize({ architecture: "lfm2moe", types: ["F32"], seed: 1, layers: 3 }),
};
const TENSORS = { lfm2: tensorsOf(MODELS.lfm2), lfm2moe: tensorsOf(MODELS.lfm2moe) };

/** The model's tensors in the checkpoint's format. */
function tensorsOf(bytes: Uint8Array<ArrayBuffer>): Map<string, StoredTensor> {
  const tensors = new Map<string, StoredTensor>();
  for (const { name, offset, byteLength, shape } of parseGguf(bytes).tensors.values()) {
    const values = new Float32Array(bytes.slice(offset, offset + byteLength).buffer);
    const put = (name: string, values: Float32Array, shape: readonly number[]) =>
      void tensors.set(name, storeFloats("F32", shape, values));
    const rows = shape.toReversed();
    const [, layer, tensor] = /^blk\.(\d+)\.(.*)$/.exec(name) ?? [];
    const part = /^ffn_(\w+)_exps\.weight$/.exec(tensor ?? "")?.[1];
    const prefix = `model.layers.${layer}`;
    if (name === "token_embd.weight") put("model.embed_tokens.weight", values, rows);
    else if (name === "token_embd_norm.weight") put("model.embedding_norm.weight", values, rows);
    else if (tensor === "shortconv.conv.weight") {
      put(`${prefix}.conv.conv.weight`, values, [rows[0], 1, rows[1]]);
    } else if (part) {
      const each = values.length / rows[0];
      for (let i = 0; i < rows[0]; i++) {
        const expert = `${prefix}.feed_forward.experts.${i}.${EXPERTS[part]}.weight`;
        put(expert, values.slice(i * each, (i + 1) * each), rows.slice(1));
      }
    } else put(`${prefix}.${LAYER[tensor]}`, values, rows);
  }
  return tensors;
}

/** Converts a checkpoint of the model, after optional changes of configuration and tensors. */
async function converted(
  name: Name,
  { quantize, change = () => {} }: {
    quantize?: "q8_0";
    change?: (config: Config, tensors: Map<string, StoredTensor>) => void;
  } = {},
): Promise<Written> {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    const tiny = tinyCheckpoint({ model: "llama", weights: "F32", layout: "hf", seed: 1 });
    const [config, tensors] = [{ ...CONFIGS[name] }, new Map(TENSORS[name])];
    change(config, tensors);
    await writeCheckpoint(folder, { ...tiny, config, tensors });
    const out = join(folder, "out.gguf");
    await convertCheckpoint({ folder, out, quantize });
    return await Written.read(out);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

for (const name of ["lfm2", "lfm2moe"] as const) {
  Deno.test(`convert: ${name}'s checkpoint becomes the original model`, async () => {
    const bytes = MODELS[name];
    const [model, written] = [parseGguf(bytes), await converted(name)];
    assertEquals([...written.gguf.tensors.keys()].sort(), [...model.tensors.keys()].sort());
    for (const { name, offset, byteLength } of model.tensors.values()) {
      assertEquals(written.tensor(name), bytes.subarray(offset, offset + byteLength), name);
    }
    const [ours, theirs] = [buildPlan(written.gguf), buildPlan(model)];
    assertEquals(ours.rope, theirs.rope);
    assertEquals(printPlan(ours), printPlan(theirs));
  });
}

Deno.test("convert: routers and convolution taps stay in F32, and errors are reported per expert tensor", async () => {
  const { gguf } = await converted("lfm2moe", { quantize: "q8_0" });
  const type = (name: string) => gguf.tensors.get(name)?.type;
  assertEquals(type("blk.2.ffn_gate_inp.weight"), "F32");
  assertEquals(type("blk.0.shortconv.conv.weight"), "F32");
  assertEquals(type("blk.2.ffn_gate_exps.weight"), "Q8_0");
  assertEquals(gguf.tensors.get("blk.2.ffn_down_exps.weight")?.shape, [256, 256, 12]);
  assert(buildPlan(gguf).ops.length > 0);
});

Deno.test("convert: accepts attention layers by number, and a separate output matrix", async () => {
  const { gguf } = await converted("lfm2", {
    change: (config, tensors) => {
      delete config.layer_types;
      Object.assign(config, { full_attn_idxs: [2], tie_embedding: false });
      tensors.set("lm_head.weight", tensors.get("model.embed_tokens.weight")!);
    },
  });
  assert(gguf.tensors.has("output.weight"));
  assertEquals(buildPlan(gguf).states.length, 2);
});

const REFUSED:
  readonly (readonly [Name, string, (config: Config, tensors: Map<string, StoredTensor>) => void])[] = [
    ["lfm2", '"layer_types"', (config) => config.layer_types = LAYER_TYPES.slice(1)],
    ["lfm2", '"layer_types"', (config) => config.layer_types = LAYER_TYPES.with(0, "mamba")],
    ["lfm2", '"conv_bias"', (config) => config.conv_bias = true],
    ["lfm2", '"conv_L_cache"', (config) => config.conv_L_cache = 100],
    ["lfm2", '"norm_eps"', (config) => delete config.norm_eps],
    ["lfm2", '"block_ff_dim"', (config) => config.block_ff_dim = 0],
    ["lfm2", 'rope_type"', (config) => config.rope_scaling = { rope_type: "linear", factor: 2 }],
    ["lfm2", '"model.layers.0.conv.conv.weight"', (config) => config.conv_L_cache = 4],
    ["lfm2", '"model.embedding_norm.weight"', (_, tensors) => tensors.delete("model.embedding_norm.weight")],
    ["lfm2moe", '"num_experts_per_tok"', (config) => config.num_experts_per_tok = 13],
    ["lfm2moe", '"routed_scaling_factor"', (config) => config.routed_scaling_factor = 2.5],
    ["lfm2moe", '"norm_topk_prob"', (config) => config.norm_topk_prob = false],
    [
      "lfm2moe",
      '"model.layers.2.feed_forward.experts.7.w3.weight"',
      (_, tensors) => tensors.delete("model.layers.2.feed_forward.experts.7.w3.weight"),
    ],
    [
      "lfm2moe",
      '"model.layers.2.feed_forward.experts.7.w3.weight"',
      (_, tensors) => {
        const name = "model.layers.2.feed_forward.experts.7.w3.weight";
        tensors.set(name, storeFloats("F16", [256, 256], new Float32Array(256 * 256)));
      },
    ],
  ];

for (const [i, [name, what, change]] of everyNth(3, [...REFUSED.entries()])) {
  Deno.test(`convert: refuses a checkpoint of ${name} with ${what} (${i})`, async () => {
    const error = await assertRejects(() => converted(name, { change }), ConvertError);
    assert(error.message.includes(what), error.message);
  });
}
