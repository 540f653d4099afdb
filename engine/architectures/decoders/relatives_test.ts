/** Llama's relatives: decoders that equal another one, and files that are refused by key or tensor. */
import { assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { GgufError } from "../../gguf/errors.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { GgufBuilder } from "../../gguf/testing.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { graphOf } from "../../plan/testing.ts";
import { leftOutParts } from "../left_out.ts";
import { buildPlan, readRopeFactors } from "../registry.ts";

type Name =
  | "phi3"
  | "granite"
  | "mistral3"
  | "smollm3"
  | "llama"
  | "ernie4_5"
  | "internlm2"
  | "qwen2"
  | "exaone"
  | "pangu-embedded"
  | "maincoder"
  | "arcee"
  | "minicpm"
  | "gemma"
  | "seed_oss"
  | "chatglm";

const [WIDTH, FEED_FORWARD, HEAD] = [64, 96, 16];

/** Builds a file of one layer with four query heads over two KV heads. */
function model(architecture: Name): GgufBuilder {
  const builder = new GgufBuilder().set("general.architecture", "STRING", architecture);
  const counts = {
    block_count: 1,
    context_length: 128,
    embedding_length: WIDTH,
    feed_forward_length: FEED_FORWARD,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
  };
  const gated = architecture !== "arcee";
  for (const [key, value] of Object.entries(counts)) builder.set(`${architecture}.${key}`, "UINT32", value);
  builder.set(`${architecture}.attention.layer_norm_rms_epsilon`, "FLOAT32", 1e-5);
  builder.array("tokenizer.ggml.tokens", "STRING", ["a"]);
  const fused = architecture === "phi3" || architecture === "chatglm";
  const matrices = {
    ...fused ? { attn_qkv: [WIDTH, 8 * HEAD], ffn_up: [WIDTH, 2 * FEED_FORWARD] } : {
      attn_q: [WIDTH, 4 * HEAD],
      attn_k: [WIDTH, 2 * HEAD],
      attn_v: [WIDTH, 2 * HEAD],
      ...gated && { ffn_gate: [WIDTH, FEED_FORWARD] },
      ffn_up: [WIDTH, FEED_FORWARD],
    },
    attn_output: [4 * HEAD, WIDTH],
    ffn_down: [FEED_FORWARD, WIDTH],
    attn_norm: [WIDTH],
    [architecture === "seed_oss" ? "post_attention_norm" : "ffn_norm"]: [WIDTH],
  };
  for (const [name, shape] of Object.entries(matrices)) builder.tensor(`blk.0.${name}.weight`, "F32", shape);
  return builder.tensor("token_embd.weight", "F32", [WIDTH, 1]).tensor("output_norm.weight", "F32", [WIDTH]);
}

const parsed = (builder: GgufBuilder): GgufFile => parseGguf(builder.build().bytes);

Deno.test("llama relatives: reads each architecture", () => {
  for (const name of ["phi3", "granite", "mistral3", "smollm3", "arcee", "minicpm", "gemma"] as const) {
    assertEquals(buildPlan(parsed(model(name))).architecture, name);
  }
});

for (const name of ["ernie4_5", "internlm2"] as const) {
  Deno.test(`${name}: equals Llama's decoder`, () => {
    assertEquals(graphOf(buildPlan(parsed(model(name)))), graphOf(buildPlan(parsed(model("llama")))));
  });
}

for (const name of ["exaone", "pangu-embedded"] as const) {
  Deno.test(`${name}: equals Qwen2's decoder`, () => {
    assertEquals(graphOf(buildPlan(parsed(model(name)))), graphOf(buildPlan(parsed(model("qwen2")))));
  });
}

Deno.test("pangu-embedded: adds the bias of the attention output matrix", () => {
  const bias = "blk.0.attn_output.bias";
  const plan = buildPlan(parsed(model("pangu-embedded").tensor(bias, "F32", [WIDTH])));
  assertEquals(plan.tensors.some(({ info }) => info.name === bias), true);
});

Deno.test("gemma: equals Qwen2's decoder with GELU and an embedding scaled by the square root of its width", () => {
  const [gemma, qwen2] = (["gemma", "qwen2"] as const).map((name) => graphOf(buildPlan(parsed(model(name)))));
  assertEquals(gemma.replaceAll("geglu(", "swiglu(").replace("; scale 8)", ")"), qwen2);
});

Deno.test("minicpm: uses the scales of MiniCPM 1 and 2 when the file has none", () => {
  const said = model("minicpm");
  const scales = { embedding_scale: 12, residual_scale: 1.4, logit_scale: WIDTH / 256 };
  for (const [key, scale] of Object.entries(scales)) said.set(`minicpm.${key}`, "FLOAT64", scale);
  const graph = graphOf(buildPlan(parsed(said)));
  assertEquals(graphOf(buildPlan(parsed(model("minicpm")))), graph);
  assertNotEquals(graphOf(buildPlan(parsed(said.set("minicpm.logit_scale", "FLOAT64", 1)))), graph);
});

Deno.test("seed_oss: equals Qwen2's decoder but for one norm's name", () => {
  const [seed, qwen2] = (["seed_oss", "qwen2"] as const).map((name) =>
    graphOf(buildPlan(parsed(model(name))))
  );
  assertEquals(seed.replace("post_attention_norm", "ffn_norm"), qwen2);
});

Deno.test("chatglm: equals Phi-3's decoder but for the pairs that it rotates", () => {
  const [glm, phi3] = (["chatglm", "phi3"] as const).map((name) => graphOf(buildPlan(parsed(model(name)))));
  assertEquals(glm.replaceAll(" interleaved", ""), phi3);
  assertNotEquals(glm, phi3);
});

Deno.test("phi3: reads the parts of a fused matrix from consecutive places of the file", () => {
  const plan = buildPlan(parsed(model("phi3")));
  const parts = plan.tensors.filter(({ info }) => info.name.includes("attn_qkv"));
  assertEquals(parts.map(({ info }) => info.name), [
    "blk.0.attn_qkv.weight[0:64]",
    "blk.0.attn_qkv.weight[64:96]",
    "blk.0.attn_qkv.weight[96:128]",
  ]);
  assertEquals(leftOutParts(parsed(model("phi3")), plan), []);
  const [q, k, v] = parts.map(({ info }) => info);
  assertEquals([k.offset - q.offset, v.offset - k.offset], [q.byteLength, k.byteLength]);
  assertEquals(q.byteLength, 4 * 64 * WIDTH);
});

const BAD: readonly (readonly [what: string, field: string, change: () => GgufBuilder])[] = [
  ...([["attn_qkv", [WIDTH, 7 * HEAD]], ["ffn_up", [WIDTH, FEED_FORWARD]]] as const).map((
    [name, shape],
  ) =>
    [
      `phi3 with ${name} of another shape`,
      `tensor "blk.0.${name}.weight"`,
      () => model("phi3").tensor(`blk.0.${name}.weight`, "F32", shape),
    ] as const
  ),
  [
    "phi3 without attn_qkv",
    'tensor "blk.0.attn_qkv.weight"',
    () => model("phi3").deleteTensor("blk.0.attn_qkv.weight"),
  ],
  [
    "phi3 with a bias of another length",
    'tensor "blk.0.attn_qkv.bias"',
    () => model("phi3").tensor("blk.0.attn_qkv.bias", "F32", [4 * HEAD]),
  ],
  [
    "phi3 with separate queries too",
    'tensor "blk.0.attn_q.weight"',
    () => model("phi3").tensor("blk.0.attn_q.weight", "F32", [WIDTH, 4 * HEAD]),
  ],
  ...([
    ["granite", "embedding_scale", -1],
    ["granite", "residual_scale", NaN],
    ["granite", "attention.scale", -0.5],
    ["granite", "logit_scale", Infinity],
    ["minicpm", "embedding_scale", -12],
    ["minicpm", "residual_scale", Infinity],
    ["minicpm", "logit_scale", NaN],
    ["mistral3", "attention.temperature_scale", -0.1],
  ] as const).map(([name, key, value]) =>
    [
      `${name} with ${key} of ${value}`,
      `key "${name}.${key}"`,
      () => model(name).set(`${name}.${key}`, "FLOAT32", value),
    ] as const
  ),
  [
    "seed_oss with another norm before the feed-forward half",
    'tensor "blk.0.post_attention_norm.weight"',
    () =>
      model("seed_oss").deleteTensor("blk.0.post_attention_norm.weight")
        .tensor("blk.0.ffn_norm.weight", "F32", [WIDTH]),
  ],
  [
    "chatglm with a gate",
    'tensor "blk.0.ffn_gate.weight"',
    () => model("chatglm").tensor("blk.0.ffn_gate.weight", "F32", [WIDTH, FEED_FORWARD]),
  ],
  ...(["granite", "minicpm", "chatglm", "exaone", "arcee", "gemma", "pangu-embedded", "maincoder"] as const)
    .map((
      name,
    ) =>
      [
        `${name} with experts`,
        `key "${name}.expert_count"`,
        () => model(name).set(`${name}.expert_count`, "UINT32", 4),
      ] as const
    ),
  [
    "maincoder without norms of heads",
    'tensor "blk.0.attn_q_norm.weight"',
    () => model("maincoder"),
  ],
  [
    "pangu-embedded with a bias of another length",
    'tensor "blk.0.attn_output.bias"',
    () => model("pangu-embedded").tensor("blk.0.attn_output.bias", "F32", [4 * HEAD + 1]),
  ],
  [
    "gemma with a norm behind attention",
    'tensor "blk.0.post_attention_norm.weight"',
    () => model("gemma").tensor("blk.0.post_attention_norm.weight", "F32", [WIDTH]),
  ],
  [
    "arcee with a gate",
    'tensor "blk.0.ffn_gate.weight"',
    () => model("arcee").tensor("blk.0.ffn_gate.weight", "F32", [WIDTH, FEED_FORWARD]),
  ],
  [
    "minicpm with LongRoPE and without its factors",
    'tensor "rope_factors_long.weight"',
    () => model("minicpm").set("minicpm.rope.scaling.type", "STRING", "longrope"),
  ],
];

for (const [what, field, change] of BAD) {
  Deno.test(`llama relatives: refuses ${what}`, () => {
    const error = assertThrows(() => buildPlan(parsed(change())), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", field]);
  });
}

Deno.test("LongRoPE: refuses factors that are not F32, positive and one per pair", async () => {
  const refused = async (length: number, type: "F32" | "F16", value: number) => {
    const path = await Deno.makeTempFile({ suffix: ".gguf" });
    try {
      const values = new (type === "F32" ? Float32Array : Float16Array)(length).fill(value);
      const builder = model("phi3").tensor("rope_factors_long.weight", type, [length], values);
      const { bytes } = builder.build();
      await Deno.writeFile(path, bytes);
      const error = await readRopeFactors(parseGguf(bytes, bytes.length, path)).then(
        () => undefined,
        (error) => error as GgufError,
      );
      return error && [error.code, error.field];
    } finally {
      await Deno.remove(path);
    }
  };
  const field = 'tensor "rope_factors_long.weight"';
  assertEquals(await refused(HEAD / 2, "F32", 2), undefined);
  assertEquals(await refused(HEAD, "F32", 2), ["GGUF_HPARAM", field]);
  assertEquals(await refused(HEAD / 2, "F16", 2), ["GGUF_HPARAM", field]);
  assertEquals(await refused(HEAD / 2, "F32", 0), ["GGUF_DATA", field]);
});
