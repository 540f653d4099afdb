import { assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { type StoredTensor, storeFloats, tokenizerOf, writeCheckpoint } from "../../testing/checkpoints.ts";
import { Random } from "../../testing/random.ts";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { convertCheckpoint, ConvertError } from "../convert.ts";
import { Written } from "../testing.ts";

const [HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, VOCABULARY] = [64, 96, 4, 2, 16, 7, 320];
const TEXT = {
  num_hidden_layers: LAYERS,
  hidden_size: HIDDEN,
  intermediate_size: FFN,
  num_attention_heads: HEADS,
  num_key_value_heads: KV_HEADS,
  head_dim: HEAD_DIM,
  vocab_size: VOCABULARY,
  query_pre_attn_scalar: HEAD_DIM,
  sliding_window: 24,
  final_logit_softcapping: null,
};
const CONFIG = { model_type: "gemma3_text", ...TEXT, rope_scaling: { rope_type: "linear", factor: 8 } };

function checkpoint(prefix: string): Map<string, StoredTensor> {
  const [random, tensors] = [new Random(3), new Map<string, StoredTensor>()];
  const add = (name: string, ...shape: number[]) => {
    const length = shape.reduce((product, n) => product * n);
    const values = Float32Array.from({ length }, () => (random.below(33) - 16) / 64);
    tensors.set(`${prefix}${name}.weight`, storeFloats("BF16", shape, values));
  };
  add("embed_tokens", VOCABULARY, HIDDEN);
  add("norm", HIDDEN);
  for (let i = 0; i < LAYERS; i++) {
    const layer = `layers.${i}.`;
    for (const norm of ["input", "post_attention", "pre_feedforward", "post_feedforward"]) {
      add(`${layer}${norm}_layernorm`, HIDDEN);
    }
    add(`${layer}self_attn.q_proj`, HEADS * HEAD_DIM, HIDDEN);
    for (const part of ["k_proj", "v_proj"]) add(`${layer}self_attn.${part}`, KV_HEADS * HEAD_DIM, HIDDEN);
    add(`${layer}self_attn.o_proj`, HIDDEN, HEADS * HEAD_DIM);
    for (const part of ["q_norm", "k_norm"]) add(`${layer}self_attn.${part}`, HEAD_DIM);
    for (const part of ["gate_proj", "up_proj"]) add(`${layer}mlp.${part}`, FFN, HIDDEN);
    add(`${layer}mlp.down_proj`, HIDDEN, FFN);
  }
  return tensors;
}

async function convert<T>(
  config: Record<string, unknown>,
  tensors: Map<string, StoredTensor>,
  read: (written: Written) => T,
): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "compy-convert-" });
  try {
    await writeCheckpoint(folder, { ...tokenizerOf("qwen3"), shards: 1, config, tensors });
    const out = join(folder, "out.gguf");
    const { refusal } = await convertCheckpoint({ folder, out });
    assertEquals(refusal, undefined);
    return read(await Written.read(out));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("convert: adds 1 to Gemma 3's norms, keeps its matrices, and the file makes a plan", async () => {
  const tensors = checkpoint("model.");
  await convert(CONFIG, tensors, (written) => {
    const { metadata } = written.gguf;
    assertEquals(metadata.getString("general.architecture"), "gemma3");
    assertEquals(metadata.getNumber("gemma3.attention.sliding_window"), 24);
    assertEquals(metadata.getNumber("gemma3.rope.scaling.factor"), 8);
    assertEquals(metadata.getNumber("gemma3.rope.freq_base"), 1e6);
    const stored = (name: string) => {
      const { bytes } = tensors.get(name)!;
      const bits = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
      return [...new Float32Array(Uint32Array.from(bits, (word) => word << 16).buffer)];
    };
    for (
      const [name, from] of [
        ["output_norm", "norm"],
        ["blk.3.post_ffw_norm", "layers.3.post_feedforward_layernorm"],
        ["blk.3.ffn_norm", "layers.3.pre_feedforward_layernorm"],
        ["blk.5.attn_k_norm", "layers.5.self_attn.k_norm"],
      ]
    ) {
      const expected = stored(`model.${from}.weight`).map((weight) => weight + 1);
      assertEquals([...written.values(`${name}.weight`)], expected);
    }
    assertEquals(
      [...written.values("blk.2.attn_q.weight")],
      stored("model.layers.2.self_attn.q_proj.weight"),
    );
    assertEquals(buildPlan(written.gguf).architecture, "gemma3");
  });
});

Deno.test("convert: reads Gemma 3 next to a vision part, with rotary keys per kind of layer", async () => {
  const tensors = checkpoint("model.language_model.");
  const small = storeFloats("BF16", [4], new Float32Array(4));
  tensors.set("model.vision_tower.norm.weight", small).set("model.multi_modal_projector.weight", small);
  const ropes = {
    full_attention: { rope_type: "linear", factor: 8, rope_theta: 5e5 },
    sliding_attention: { rope_type: "default", rope_theta: 10_000 },
  };
  const config = { model_type: "gemma3", text_config: { ...TEXT, rope_parameters: ropes } };
  await convert(config, tensors, ({ gguf }) => {
    assertEquals(gguf.metadata.getNumber("gemma3.rope.freq_base"), 5e5);
    assertEquals(buildPlan(gguf).architecture, "gemma3");
  });
});

for (
  const [key, value] of [
    ["hidden_activation", "silu"],
    ["sliding_window_pattern", 4],
    ["rope_local_base_freq", 20_000],
    ["query_pre_attn_scalar", 100],
    ["layer_types", Array(LAYERS).fill("sliding_attention")],
  ] as const
) {
  Deno.test(`convert: rejects Gemma 3 when ${key} differs, and the message names the key`, async () => {
    const attempt = convert({ ...CONFIG, [key]: value }, checkpoint("model."), () => {});
    await assertRejects(() => attempt, ConvertError, key);
  });
}
