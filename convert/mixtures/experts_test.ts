/** Tests of checkpoints with experts: one module per expert, stacked experts, and gpt-oss's own layout. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { type StoredTensor, storeFloats, TINY, type TinyCheckpoint } from "../../testing/checkpoints.ts";
import { Random, seedOf } from "../../testing/random.ts";
import { ConvertError, type ConvertOptions } from "../convert.ts";
import { writeImportance } from "../importance.ts";
import { BF16, CheckpointFolder, MXFP4, Written } from "../testing.ts";

const { hidden, layers, heads, kvHeads, headDim } = TINY;
const COUNT = 3;
const FEED_FORWARD = 64;

/** Returns values that BF16 holds exactly. */
function numbers(name: string, length: number): Float32Array {
  const random = new Random(seedOf(`experts ${name}`));
  return Float32Array.from({ length }, () => (random.below(65) - 32) / 256);
}

type Values = Map<string, Float32Array>;

/** Replaces the dense feed-forward blocks with the router and experts that `put` adds. */
function withExperts(
  { config, tensors }: TinyCheckpoint,
  keys: Record<string, unknown>,
  write: (add: (name: string, shape: number[]) => void, layer: string) => void,
): Values {
  const values: Values = new Map();
  for (const name of [...tensors.keys()]) if (/layers\.\d+\.mlp\./.test(name)) tensors.delete(name);
  Object.assign((config.text_config ?? config) as Record<string, unknown>, keys);
  const add = (name: string, shape: number[]) => {
    const held = numbers(name, shape.reduce((a, b) => a * b));
    values.set(name, held);
    tensors.set(name, storeFloats("BF16", shape, held));
  };
  const prefix = config.text_config ? "model.language_model." : "model.";
  for (let i = 0; i < layers; i++) write(add, `${prefix}layers.${i}.`);
  return values;
}

const QWEN_KEYS = {
  num_experts: COUNT,
  num_experts_per_tok: 2,
  moe_intermediate_size: FEED_FORWARD,
  norm_topk_prob: true,
  decoder_sparse_step: 1,
  mlp_only_layers: [],
};

const modules = (add: (name: string, shape: number[]) => void, layer: string) => {
  add(`${layer}mlp.gate.weight`, [COUNT, hidden]);
  for (let e = 0; e < COUNT; e++) {
    for (const part of ["gate", "up"]) {
      add(`${layer}mlp.experts.${e}.${part}_proj.weight`, [FEED_FORWARD, hidden]);
    }
    add(`${layer}mlp.experts.${e}.down_proj.weight`, [hidden, FEED_FORWARD]);
  }
};

/** Gives a dense checkpoint experts, each in its own module. */
function moduleExperts(checkpoint: TinyCheckpoint): Values {
  return withExperts(checkpoint, { model_type: "qwen3_moe", ...QWEN_KEYS }, modules);
}

/** Rows of the shared expert. */
const SHARED = 96;

/** Gives a hybrid checkpoint stacked experts and a shared expert. */
function hybrid(checkpoint: TinyCheckpoint): Values {
  const { text_config } = checkpoint.config as { text_config: Record<string, unknown> };
  delete text_config.intermediate_size;
  checkpoint.config.model_type = "qwen3_5_moe";
  const keys = { ...QWEN_KEYS, norm_topk_prob: undefined, shared_expert_intermediate_size: SHARED };
  return withExperts(checkpoint, keys, (add, layer) => {
    add(`${layer}mlp.gate.weight`, [COUNT, hidden]);
    add(`${layer}mlp.experts.gate_up_proj`, [COUNT, 2 * FEED_FORWARD, hidden]);
    add(`${layer}mlp.experts.down_proj`, [COUNT, hidden, FEED_FORWARD]);
    add(`${layer}mlp.shared_expert_gate.weight`, [1, hidden]);
    for (const part of ["gate", "up"]) {
      add(`${layer}mlp.shared_expert.${part}_proj.weight`, [SHARED, hidden]);
    }
    add(`${layer}mlp.shared_expert.down_proj.weight`, [hidden, SHARED]);
  });
}

Deno.test("convert: stacks qwen3_moe's experts and keeps its router in f32", async () => {
  let values: Values = new Map();
  await using folder = await CheckpointFolder.make({ ...BF16, model: "qwen3" }, (checkpoint) => {
    values = moduleExperts(checkpoint);
  });
  const report = await folder.convert();
  assertEquals([report.architecture, report.refusal], ["qwen3moe", undefined]);
  const written = await Written.read(folder.out);
  const { metadata, tensors } = written.gguf;
  const keys = ["expert_count", "expert_used_count", "expert_feed_forward_length"];
  assertEquals(keys.map((key) => metadata.getCount(`qwen3moe.${key}`)), [COUNT, 2, FEED_FORWARD]);
  assertEquals(tensors.get("blk.1.ffn_gate_inp.weight")!.type, "F32");
  assertEquals(written.values("blk.1.ffn_gate_inp.weight"), values.get("model.layers.1.mlp.gate.weight"));
  for (const part of ["gate", "up", "down"]) {
    const name = `blk.1.ffn_${part}_exps.weight`;
    const shape = part === "down" ? [FEED_FORWARD, hidden, COUNT] : [hidden, FEED_FORWARD, COUNT];
    assertEquals(tensors.get(name)!.shape, shape);
    const each = Array.from({ length: COUNT }, (_, e) => [
      ...values.get(`model.layers.1.mlp.experts.${e}.${part}_proj.weight`)!,
    ]);
    assertEquals([...written.values(name)], each.flat());
  }
});

Deno.test("convert: reports the error of quantized experts and keeps the router in f32", async () => {
  await using folder = await CheckpointFolder.make({ ...BF16, model: "qwen3" }, (checkpoint) => {
    // transformers 5 saves the number of experts under another name.
    const keys = { ...QWEN_KEYS, num_experts: undefined, num_local_experts: COUNT };
    withExperts(checkpoint, { model_type: "qwen3_moe", ...keys }, modules);
  });
  const report = await folder.convert({ quantize: "q8_0" });
  const of = (name: string) => report.tensors.find((tensor) => tensor.name === name)!;
  assertEquals(of("blk.0.ffn_gate_inp.weight").type, "F32");
  const experts = of("blk.0.ffn_up_exps.weight");
  assertEquals(experts.type, "Q8_0");
  assert(experts.error!.relativeRms > 0 && experts.error!.relativeRms < 0.01);
});

for (const [model, change] of [["qwen3", moduleExperts], ["qwen3_5", hybrid]] as const) {
  Deno.test(`convert: --imatrix weighs the columns of each expert of ${model} separately`, async () => {
    await using folder = await CheckpointFolder.make(
      { ...BF16, model },
      (checkpoint) => void change(checkpoint),
    );
    const name = "blk.0.ffn_up_exps.weight";
    // Columns 8e to 8e + 8 are important for expert e.
    const weighs = (expert: number, column: number) => column >> 3 === expert;
    const sums = Float32Array.from(
      { length: COUNT * hidden },
      (_, i) => weighs(Math.floor(i / hidden), i % hidden) ? 100 : 1,
    );
    const importance = `${folder.path}.gguf`;
    const inputs = new Map([[name, { sums, counts: new Float32Array(COUNT).fill(1) }]]);
    await writeImportance(importance, { dataset: "text", chunks: 1, chunkTokens: 1, inputs });
    const converted = async (options: Partial<ConvertOptions>) => {
      await folder.convert(options);
      const values = (await Written.read(folder.out)).values(name);
      await Deno.remove(folder.out);
      return values;
    };
    const exact = await converted({});
    const errorOf = (values: Float32Array, expert: number) =>
      values.reduce((sum, value, i) => {
        const isIn = Math.floor(i / (FEED_FORWARD * hidden)) === expert && weighs(expert, i % hidden);
        return isIn ? sum + (value - exact[i]) ** 2 : sum;
      }, 0);
    const plain = await converted({ quantize: "iq4_nl" });
    const weighed = await converted({ quantize: "iq4_nl", importance });
    for (let expert = 0; expert < COUNT; expert++) {
      const share = errorOf(weighed, expert) / errorOf(plain, expert);
      assert(share < 0.8, `expert ${expert}: ${share}`);
    }
  });
}

const REFUSED: readonly (readonly [key: string, value: unknown])[] = [
  ["norm_topk_prob", false],
  ["decoder_sparse_step", 2],
  ["mlp_only_layers", [0]],
  ["num_experts_per_tok", COUNT + 1],
  ["moe_intermediate_size", 0],
];

for (const [key, value] of REFUSED) {
  Deno.test(`convert: rejects qwen3_moe with ${key} ${JSON.stringify(value)}, and the message names the key`, async () => {
    await using folder = await CheckpointFolder.make({ ...BF16, model: "qwen3" }, (checkpoint) => {
      withExperts(checkpoint, { model_type: "qwen3_moe", ...QWEN_KEYS, [key]: value }, modules);
    });
    await assertRejects(() => folder.convert(), ConvertError, key);
  });
}

Deno.test("convert: splits qwen3_5_moe's stacks into gate and up, and keeps the shared expert", async () => {
  let values: Values = new Map();
  await using folder = await CheckpointFolder.make(BF16, (checkpoint) => {
    values = hybrid(checkpoint);
  });
  const report = await folder.convert();
  assertEquals(report.architecture, "qwen35moe");
  const written = await Written.read(folder.out);
  assertEquals(written.gguf.metadata.getCount("qwen35moe.expert_shared_feed_forward_length"), SHARED);
  const held = (name: string) => values.get(`model.language_model.layers.2.mlp.${name}`)!;
  const both = held("experts.gate_up_proj");
  for (const [part, first] of [["gate", 0], ["up", FEED_FORWARD]] as const) {
    const rows = Array.from({ length: COUNT * FEED_FORWARD }, (_, i) => {
      const row = Math.floor(i / FEED_FORWARD) * 2 * FEED_FORWARD + first + i % FEED_FORWARD;
      return [...both.subarray(row * hidden, (row + 1) * hidden)];
    });
    assertEquals([...written.values(`blk.2.ffn_${part}_exps.weight`)], rows.flat());
  }
  assertEquals(written.values("blk.2.ffn_down_exps.weight"), held("experts.down_proj"));
  assertEquals(written.values("blk.2.ffn_gate_inp_shexp.weight"), held("shared_expert_gate.weight"));
  assertEquals(written.values("blk.2.ffn_up_shexp.weight"), held("shared_expert.up_proj.weight"));
});

/**
 * Returns Qwen3-Next's fused rows. Each of two key heads has its query, key, three values and their gates;
 * then its three betas and three alphas.
 */
function inGroups(
  values: ReadonlyMap<string, Float32Array>,
  from: string,
): [qkvz: Float32Array, ba: Float32Array] {
  const { kHeads, vHeads, linearDim } = TINY;
  const group = vHeads / kHeads;
  const rows = (part: string, first: number, count: number) =>
    values.get(`${from}.in_proj_${part}.weight`)!.subarray(first * hidden, (first + count) * hidden);
  const heads = (part: string, first: number, count: number) =>
    rows(part, first * linearDim, count * linearDim);
  const each = [0, 1].map((k) => ({
    qkvz: [
      heads("qkv", k, 1),
      heads("qkv", kHeads + k, 1),
      heads("qkv", 2 * kHeads + k * group, group),
      heads("z", k * group, group),
    ],
    ba: [rows("b", k * group, group), rows("a", k * group, group)],
  }));
  const joined = (parts: Float32Array[]) => Float32Array.from(parts.flatMap((part) => [...part]));
  return [joined(each.flatMap(({ qkvz }) => qkvz)), joined(each.flatMap(({ ba }) => ba))];
}

Deno.test("convert: splits qwen3_next's fused rows and keeps its order of value heads", async () => {
  const { kHeads, vHeads, linearDim } = TINY;
  let values: ReadonlyMap<string, Float32Array> = new Map();
  const numbers = new Map<string, Float32Array>();
  await using folder = await CheckpointFolder.make(BF16, (checkpoint) => {
    values = checkpoint.values;
    const { config } = checkpoint;
    Object.assign(config, config.text_config, { model_type: "qwen3_next" });
    for (const key of ["text_config", "intermediate_size"]) delete config[key];
    for (const [name, tensor] of [...checkpoint.tensors]) {
      checkpoint.tensors.delete(name);
      if (!/in_proj|visual/.test(name)) checkpoint.tensors.set(name.replace("language_model.", ""), tensor);
    }
    for (let i = 0; i < layers - 1; i++) {
      const from = `model.layers.${i}.linear_attn`;
      const [qkvz, ba] = inGroups(values, from);
      numbers.set(`${i} ba`, ba);
      const rows = 2 * (kHeads + vHeads) * linearDim;
      checkpoint.tensors.set(`${from}.in_proj_qkvz.weight`, storeFloats("BF16", [rows, hidden], qkvz));
      checkpoint.tensors.set(`${from}.in_proj_ba.weight`, storeFloats("BF16", [2 * vHeads, hidden], ba));
    }
    const keys = { ...QWEN_KEYS, shared_expert_intermediate_size: 96 };
    withExperts(checkpoint, keys, (add, layer) => {
      modules(add, layer);
      add(`${layer}mlp.shared_expert_gate.weight`, [1, hidden]);
      for (const part of ["gate", "up"]) add(`${layer}mlp.shared_expert.${part}_proj.weight`, [96, hidden]);
      add(`${layer}mlp.shared_expert.down_proj.weight`, [hidden, 96]);
    });
  });
  const report = await folder.convert();
  assertEquals([report.architecture, report.refusal], ["qwen3next", undefined]);
  const written = await Written.read(folder.out);
  for (let i = 0; i < layers - 1; i++) {
    const held = (name: string) => values.get(`model.layers.${i}.linear_attn.${name}.weight`)!;
    for (const [name, from] of [["attn_qkv", "in_proj_qkv"], ["attn_gate", "in_proj_z"]]) {
      assertEquals(written.values(`blk.${i}.${name}.weight`), held(from), name);
    }
    assertEquals(written.values(`blk.${i}.ssm_ba.weight`), numbers.get(`${i} ba`));
    assertEquals(written.values(`blk.${i}.ssm_out.weight`), held("out_proj"));
    assertEquals(written.values(`blk.${i}.ssm_conv1d.weight`), held("conv1d"));
  }
});

/** Puts gpt-oss's experts into the checkpoint: two E2M1 codes per byte, and exponents. */
function gptOss({ config, tensors, tokenizer }: TinyCheckpoint): Values {
  const values: Values = new Map();
  for (const key of Object.keys(config)) if (key.startsWith("rope")) delete config[key];
  Object.assign(config, {
    model_type: "gpt_oss",
    attention_bias: true,
    intermediate_size: FEED_FORWARD,
    num_local_experts: COUNT,
    num_experts_per_tok: 2,
    sliding_window: 24,
    layer_types: Array.from({ length: layers }, (_, i) => i % 2 ? "full_attention" : "sliding_attention"),
    swiglu_limit: 7,
    rope_theta: 150_000,
    rope_scaling: {
      rope_type: "yarn",
      factor: 8,
      beta_fast: 32,
      beta_slow: 1,
      original_max_position_embeddings: 256,
      truncate: false,
    },
    quantization_config: { quant_method: "mxfp4", modules_to_not_convert: ["model.embed_tokens", "lm_head"] },
  });
  for (const name of [...tensors.keys()]) if (/layers\.\d+\.mlp\./.test(name)) tensors.delete(name);
  const add = (name: string, shape: number[]) => {
    const held = numbers(name, shape.reduce((a, b) => a * b));
    values.set(name, held);
    tensors.set(name, storeFloats("BF16", shape, held));
  };
  const bytes = (name: string, shape: number[], below: number, from = 0): StoredTensor => {
    const random = new Random(seedOf(`gpt-oss ${name}`));
    const length = shape.reduce((a, b) => a * b);
    return { dtype: "U8", shape, bytes: Uint8Array.from({ length }, () => from + random.below(below)) };
  };
  for (let i = 0; i < layers; i++) {
    const [attention, mlp] = [`model.layers.${i}.self_attn.`, `model.layers.${i}.mlp.`];
    const rows = {
      q_proj: heads * headDim,
      k_proj: kvHeads * headDim,
      v_proj: kvHeads * headDim,
      o_proj: hidden,
    };
    for (const [module, length] of Object.entries(rows)) add(`${attention}${module}.bias`, [length]);
    add(`${attention}sinks`, [heads]);
    add(`${mlp}router.weight`, [COUNT, hidden]);
    add(`${mlp}router.bias`, [COUNT]);
    add(`${mlp}experts.gate_up_proj_bias`, [COUNT, 2 * FEED_FORWARD]);
    add(`${mlp}experts.down_proj_bias`, [COUNT, hidden]);
    for (
      const [name, height, columns] of [["gate_up_proj", 2 * FEED_FORWARD, hidden], [
        "down_proj",
        hidden,
        FEED_FORWARD,
      ]] as const
    ) {
      const groups = [COUNT, height, columns / 32];
      tensors.set(`${mlp}experts.${name}_blocks`, bytes(`${i} ${name}`, [...groups, 16], 256));
      tensors.set(`${mlp}experts.${name}_scales`, bytes(`${i} ${name} scales`, groups, 8, 118));
    }
  }
  const steps =
    (tokenizer.pre_tokenizer as { pretokenizers: { pattern: { Regex: string } }[] }).pretokenizers;
  steps[0].pattern.Regex = O200K;
  return values;
}

/** The pattern of gpt-oss's tokenizer.json. */
const O200K =
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" +
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" +
  "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

Deno.test("convert: moves gpt-oss's blocks bit for bit and separates its alternating gate and up rows", async () => {
  let values: Values = new Map();
  await using folder = await CheckpointFolder.make(
    { ...BF16, model: "llama" },
    (checkpoint) => void (values = gptOss(checkpoint)),
  );
  const report = await folder.convert();
  assertEquals([report.architecture, report.refusal], ["gpt-oss", undefined]);
  assert(report.tensors.every(({ error }) => error === undefined));
  const written = await Written.read(folder.out);
  const { metadata, tensors } = written.gguf;
  assertEquals(metadata.getString("tokenizer.ggml.pre"), "gpt-4o");
  assertEquals(metadata.getString("gpt-oss.rope.scaling.type"), "yarn");
  assertEquals(metadata.getCount("gpt-oss.rope.scaling.original_context_length"), 256);
  assertEquals(metadata.getCount("gpt-oss.attention.sliding_window"), 24);
  const mlp = "model.layers.1.mlp.experts.";
  const stored = (name: string) => folder.checkpoint.tensors.get(`${mlp}${name}`)!.bytes;
  const cases = [["gate", "gate_up_proj", 0], ["up", "gate_up_proj", 1], [
    "down",
    "down_proj",
    undefined,
  ]] as const;
  for (const [part, from, odd] of cases) {
    const [columns, rows] = part === "down" ? [FEED_FORWARD, hidden] : [hidden, FEED_FORWARD];
    const name = `blk.1.ffn_${part}_exps`;
    assertEquals(tensors.get(`${name}.weight`)!.shape, [columns, rows, COUNT]);
    const [blocks, scales] = [stored(`${from}_blocks`), stored(`${from}_scales`)];
    const bytes = written.tensor(`${name}.weight`);
    const groups = columns / 32;
    for (let block = 0; block < COUNT * rows * groups; block++) {
      const row = Math.floor(block / groups);
      const source = (odd === undefined ? row : 2 * row + odd) * groups + block % groups;
      assertEquals(bytes[17 * block], scales[source]);
      const code = (column: number) => blocks[16 * source + (column >> 1)] >> 4 * (column & 1) & 15;
      for (let j = 0; j < 16; j++) assertEquals(bytes[17 * block + 1 + j], code(j) | code(j + 16) << 4);
    }
    const bias = values.get(`${mlp}${from}_bias`)!;
    const kept = odd === undefined ? bias : bias.filter((_, i) => i % 2 === odd);
    assertEquals(written.values(`${name}.bias`), Float32Array.from(kept));
  }
  assertEquals(written.values("blk.1.attn_sinks.weight"), values.get("model.layers.1.self_attn.sinks"));
});

for (
  const [key, value] of [["layer_types", ["full_attention"]], ["swiglu_limit", 5], [
    "num_local_experts",
    0,
  ]] as const
) {
  Deno.test(`convert: rejects gpt-oss with ${key} ${JSON.stringify(value)}, and the message names the key`, async () => {
    await using folder = await CheckpointFolder.make({ ...BF16, model: "llama" }, (checkpoint) => {
      gptOss(checkpoint);
      checkpoint.config[key] = value;
    });
    await assertRejects(() => folder.convert(), ConvertError, key);
  });
}

Deno.test("convert: stacks experts in MLX's MXFP4 without changing bits", async () => {
  const options = { ...MXFP4, model: "qwen3" } as const;
  const dense = ["gate", "up", "down"] as const;
  await using folder = await CheckpointFolder.make(options, ({ config, tensors }) => {
    Object.assign(config, { model_type: "qwen3_moe", ...QWEN_KEYS, moe_intermediate_size: TINY.feedForward });
    for (let i = 0; i < layers; i++) {
      const mlp = `model.layers.${i}.mlp.`;
      for (const part of dense) {
        for (const kind of ["weight", "scales"]) {
          const own = tensors.get(`${mlp}${part}_proj.${kind}`)!;
          tensors.delete(`${mlp}${part}_proj.${kind}`);
          for (let e = 0; e < COUNT; e++) tensors.set(`${mlp}experts.${e}.${part}_proj.${kind}`, own);
        }
      }
      tensors.set(
        `${mlp}gate.weight`,
        storeFloats("BF16", [COUNT, hidden], numbers(`gate ${i}`, COUNT * hidden)),
      );
    }
  });
  await folder.convert();
  const written = await Written.read(folder.out);
  const one = [...folder.checkpoint.values.get("model.layers.3.mlp.up_proj.weight")!];
  assertEquals([...written.values("blk.3.ffn_up_exps.weight")], [...one, ...one, ...one]);
});
