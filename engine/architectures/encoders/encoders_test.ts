import { assert, assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../../gguf/errors.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { GgufBuilder } from "../../gguf/testing.ts";
import type { GgufFile, TensorType } from "../../gguf/types.ts";
import { isEncoder, type Plan } from "../../plan/plan.ts";
import { printPlan } from "../../plan/print.ts";
import { buildPlan } from "../registry.ts";

const NAMES = [
  "bert",
  "nomic-bert",
  "nomic-bert-moe",
  "modern-bert",
  "neo-bert",
  "jina-bert-v2",
  "jina-bert-v3",
  "eurobert",
  "llama-embed",
] as const;
type Name = typeof NAMES[number];
const isLlamas = (name: Name) => name === "eurobert" || name === "llama-embed";
type Keys = Readonly<Record<string, number | boolean | string | undefined>>;
type Tensors = Readonly<Record<string, readonly number[] | undefined>>;

const [WIDTH, CONTEXT, FEED_FORWARD] = [64, 48, 96];
const EXPERTS = 3;
/** Keys that only some architectures have. */
const LLAMAS: Keys = {
  "attention.layer_norm_rms_epsilon": 1e-6,
  "attention.layer_norm_epsilon": undefined,
  "attention.head_count_kv": 2,
};
const OWN: Readonly<Partial<Record<string, Keys>>> = {
  "neo-bert": { ...LLAMAS, "attention.head_count_kv": undefined },
  eurobert: LLAMAS,
  "llama-embed": LLAMAS,
  "modern-bert": { "attention.sliding_window": 16 },
  "nomic-bert-moe": { moe_every_n_layers: 2, expert_count: EXPERTS, expert_used_count: 2 },
};
const TOKENS = ["a", "b"];

const KEYS: Keys = {
  block_count: 2,
  context_length: CONTEXT,
  embedding_length: WIDTH,
  feed_forward_length: FEED_FORWARD,
  "attention.head_count": 4,
  "attention.causal": false,
  "attention.layer_norm_epsilon": 1e-12,
};

/** Shapes of NeoBERT, which has Llama's layers in fewer tensors. */
function neosShapes(): Record<string, readonly number[]> {
  const shapes: Record<string, readonly number[]> = {
    token_embd: [WIDTH, TOKENS.length],
    "enc.output_norm": [WIDTH],
  };
  for (const layer of [0, 1]) {
    const add = (name: string, ...shape: number[]) => shapes[`blk.${layer}.${name}`] = shape;
    for (const norm of ["attn_norm", "ffn_norm"]) add(norm, WIDTH);
    add("attn_qkv", WIDTH, 3 * WIDTH);
    add("attn_output", WIDTH, WIDTH);
    add("ffn_up", WIDTH, 2 * FEED_FORWARD);
    add("ffn_down", FEED_FORWARD, WIDTH);
  }
  return shapes;
}

/** Shapes of encoders with Llama's layers. */
function llamasShapes(): Record<string, readonly number[]> {
  const shapes: Record<string, readonly number[]> = {
    token_embd: [WIDTH, TOKENS.length],
    output_norm: [WIDTH],
  };
  for (const layer of [0, 1]) {
    const add = (name: string, ...shape: number[]) => shapes[`blk.${layer}.${name}`] = shape;
    for (const norm of ["attn_norm", "ffn_norm"]) add(norm, WIDTH);
    add("attn_q", WIDTH, WIDTH);
    for (const part of ["k", "v"]) add(`attn_${part}`, WIDTH, WIDTH / 2);
    add("attn_output", WIDTH, WIDTH);
    for (const part of ["gate", "up"]) add(`ffn_${part}`, WIDTH, FEED_FORWARD);
    add("ffn_down", FEED_FORWARD, WIDTH);
  }
  return shapes;
}

function shapesOf(architecture: Name): Record<string, readonly number[]> {
  if (isLlamas(architecture)) return llamasShapes();
  if (architecture === "neo-bert") return neosShapes();
  const shapes: Record<string, readonly number[]> = {
    token_embd: [WIDTH, TOKENS.length],
    token_embd_norm: [WIDTH],
  };
  const modern = architecture === "modern-bert";
  if (modern) shapes.output_norm = [WIDTH];
  else shapes.token_types = [WIDTH, 2];
  if (architecture === "bert") shapes.position_embd = [WIDTH, CONTEXT];
  for (const layer of [0, 1]) {
    const add = (name: string, ...shape: number[]) => shapes[`blk.${layer}.${name}`] = shape;
    if (architecture === "bert") { for (const part of ["q", "k", "v"]) add(`attn_${part}`, WIDTH, WIDTH); }
    else add("attn_qkv", WIDTH, 3 * WIDTH);
    add("attn_output", WIDTH, WIDTH);
    if (architecture === "nomic-bert-moe" && layer === 1) {
      add("ffn_gate_inp", WIDTH, EXPERTS);
      add("ffn_up_exps", WIDTH, FEED_FORWARD, EXPERTS);
      add("ffn_down_exps", FEED_FORWARD, WIDTH, EXPERTS);
    } else {
      const isOne = modern || architecture === "jina-bert-v2";
      add("ffn_up", WIDTH, isOne ? 2 * FEED_FORWARD : FEED_FORWARD);
      add("ffn_down", FEED_FORWARD, WIDTH);
    }
    if (architecture === "nomic-bert") add("ffn_gate", WIDTH, FEED_FORWARD);
    for (const norm of modern ? ["ffn_norm"] : ["attn_output_norm", "layer_output_norm"]) add(norm, WIDTH);
    if (modern && layer > 0) add("attn_norm", WIDTH);
  }
  return shapes;
}

function typeOf(value: number | boolean | string): "BOOL" | "STRING" | "INT32" | "FLOAT32" {
  if (typeof value === "boolean") return "BOOL";
  if (typeof value === "string") return "STRING";
  return Number.isInteger(value) ? "INT32" : "FLOAT32";
}

/**
 * Returns a file with these keys and tensors changed and layer matrices of that type; undefined removes an
 * entry.
 */
function fileWith(
  architecture: Name,
  keys: Keys = {},
  tensors: Tensors = {},
  type: TensorType = "F32",
): GgufFile {
  const builder = new GgufBuilder().set("general.architecture", "STRING", architecture);
  for (const [key, value] of Object.entries({ ...KEYS, ...OWN[architecture], ...keys })) {
    if (value === undefined) continue;
    const name = key.startsWith("tokenizer.") ? key : `${architecture}.${key}`;
    builder.set(name, typeOf(value), value);
  }
  builder.array("tokenizer.ggml.tokens", "STRING", TOKENS);
  for (const [name, shape] of Object.entries({ ...shapesOf(architecture), ...tensors })) {
    if (!shape) continue;
    const matrix = name.startsWith("blk.") && shape.length > 1;
    builder.tensor(`${name}.weight`, matrix ? type : "F32", shape);
  }
  return parseGguf(builder.build().bytes);
}

const plan = (...parts: Parameters<typeof fileWith>): Plan => buildPlan(fileWith(...parts));

for (const architecture of NAMES) {
  Deno.test(`${architecture}: builds a plan without KV cache and logits, with the default pooling unless the file sets one`, () => {
    const built = plan(architecture);
    assert(isEncoder(built));
    assertEquals([built.kv.layers.length, built.states.length], [0, 0]);
    const text = printPlan(built);
    assert(
      text.includes(architecture === "neo-bert" ? "cls)" : "mean)") && !text.includes("candidates"),
      text,
    );
    assert(printPlan(plan(architecture, { pooling_type: 3 })).includes("last)"));
  });
}

Deno.test("modern-bert: every third layer from the first has no window, and the other layers have their own rotary table", () => {
  const layers = { ...shapesOf("modern-bert") };
  for (const [name, shape] of Object.entries(layers)) {
    if (name.startsWith("blk.1.")) {
      for (const layer of [2, 3]) layers[name.replace("blk.1.", `blk.${layer}.`)] = shape;
    }
  }
  const built = plan("modern-bert", { block_count: 4, "rope.freq_base_swa": 100.5 }, layers);
  const windows = built.ops.flatMap((op) => op.op === "text_attention" ? [op.window] : []);
  assertEquals(windows, [0, 16, 16, 0]);
  assertEquals(built.rope.length, 2);
});

Deno.test("encoders: rotates keys in each architecture's pair order, or not at all", () => {
  const turned = NAMES.map((name) => {
    const rotations = plan(name).ops.filter((op) => op.op === "rotate");
    return [name, rotations.length, rotations.some((op) => op.op === "rotate" && op.interleaved)];
  });
  assertEquals(turned, [
    ["bert", 0, false],
    ["nomic-bert", 4, false],
    ["nomic-bert-moe", 4, false],
    ["modern-bert", 4, false],
    ["neo-bert", 4, true],
    ["jina-bert-v2", 0, false],
    ["jina-bert-v3", 4, false],
    ["eurobert", 4, false],
    ["llama-embed", 4, true],
  ]);
});

Deno.test("eurobert: accepts fused heads; llama-embed: leaves out the matrix for logits", () => {
  const one: Record<string, readonly number[] | undefined> = {};
  for (const layer of [0, 1]) {
    for (const part of ["q", "k", "v"]) one[`blk.${layer}.attn_${part}`] = undefined;
    one[`blk.${layer}.attn_qkv`] = [WIDTH, 2 * WIDTH];
  }
  assert(printPlan(plan("eurobert", {}, one)).includes("blk.1.attn_qkv.weight"));
  const output = { output: [WIDTH, TOKENS.length] };
  assert(!printPlan(plan("llama-embed", {}, output)).includes("output.weight ["));
});

Deno.test("jina-bert-v2: scores fall by ALiBi's slopes, and gate and up are one tensor or two", () => {
  const slopes = plan("jina-bert-v2").ops.flatMap((op) =>
    op.op === "text_attention" ? [op.slopes.map(({ slope }) => Math.log2(slope))] : []
  );
  assertEquals(slopes, [[-2, -4, -6, -8], [-2, -4, -6, -8]]);
  const two: Record<string, readonly number[]> = {};
  for (const layer of [0, 1]) {
    for (const part of ["gate", "up"]) two[`blk.${layer}.ffn_${part}`] = [WIDTH, FEED_FORWARD];
  }
  for (const tensors of [{}, two]) {
    const { ops } = plan("jina-bert-v2", {}, tensors);
    assertEquals(ops.flatMap((op) => op.op === "glu" ? [op.activation] : []), ["gelu", "gelu"]);
  }
});

Deno.test("neo-bert: reads a head's query, key and value side by side", () => {
  const { ops } = plan("neo-bert");
  const places = ops.flatMap((op) => op.op === "text_attention" ? [op.q, op.k, op.v] : []);
  assertEquals(places.slice(0, 3).map(({ column, step }) => [column, step]), [[0, 48], [16, 48], [32, 48]]);
  assertEquals(new Set(places.slice(0, 3).map(({ buffer }) => buffer)).size, 1);
});

Deno.test("encoders: attention multiplies in 16 bits before 8-bit products, and in floats for float files, fine plans and narrow heads", () => {
  const rounded = ({ ops }: Plan) => ops.flatMap((op) => op.op === "text_attention" ? [op.rounds] : []);
  for (const architecture of ["bert", "nomic-bert", "modern-bert"] as const) {
    const file = (type: TensorType, heads = 1) =>
      fileWith(architecture, { "attention.head_count": heads }, {}, type);
    for (const type of ["F32", "F16", "BF16"] as const) {
      assertEquals(rounded(buildPlan(file(type))), [false, false]);
    }
    assertEquals(rounded(buildPlan(file("Q8_0"))), [true, true]);
    assertEquals(rounded(buildPlan(file("Q8_0", 2))), [false, false]);
    assertEquals(rounded(buildPlan(file("Q8_0"), undefined, undefined, { activations: "fine" })), [
      false,
      false,
    ]);
  }
});

Deno.test("modern-bert: gates use the activation that the file names", () => {
  const glusOf = (hidden_activation?: string) =>
    plan("modern-bert", { hidden_activation }).ops.flatMap((op) => op.op === "glu" ? [op.activation] : []);
  assertEquals(glusOf(), ["gelu", "gelu"]);
  assertEquals(glusOf("gelu"), ["gelu", "gelu"]);
  assertEquals(glusOf("silu"), ["silu", "silu"]);
});

Deno.test("nomic-bert-moe: every second layer has experts, weighed by the softmax over all, and others are dense", () => {
  const { ops } = plan("nomic-bert-moe");
  assertEquals(ops.flatMap((op) => op.op === "route" ? [[op.sigmoid, op.divided]] : []), [[false, false]]);
  const inner = ops.flatMap((op) => "activation" in op ? [`${op.op} ${op.activation}`] : []);
  assertEquals(inner, ["activated gelu", "expert_activated gelu"]);
});

/** The fault, the file, and the field that the error names. */
const BAD: readonly (readonly [what: string, file: () => GgufFile, field: string])[] = [
  [
    "no epsilon",
    () => fileWith("bert", { "attention.layer_norm_epsilon": undefined }),
    'key "bert.attention.layer_norm_epsilon"',
  ],
  [
    "an epsilon of 2",
    () => fileWith("nomic-bert", { "attention.layer_norm_epsilon": 2 }),
    'key "nomic-bert.attention.layer_norm_epsilon"',
  ],
  ["experts", () => fileWith("nomic-bert", { expert_count: 8 }), 'key "nomic-bert.expert_count"'],
  [
    "experts in every layer",
    () => fileWith("nomic-bert-moe", { moe_every_n_layers: 1 }),
    'key "nomic-bert-moe.moe_every_n_layers"',
  ],
  [
    "no number of layers with experts",
    () => fileWith("nomic-bert-moe", { moe_every_n_layers: undefined }),
    'key "nomic-bert-moe.moe_every_n_layers"',
  ],
  [
    "experts by sigmoids",
    () => fileWith("nomic-bert-moe", { expert_gating_func: 2 }),
    'key "nomic-bert-moe.expert_gating_func"',
  ],
  [
    "more experts chosen than there are",
    () => fileWith("nomic-bert-moe", { expert_used_count: 4 }),
    'key "nomic-bert-moe.expert_used_count"',
  ],
  [
    "another number of experts than the key says",
    () => fileWith("nomic-bert-moe", { expert_count: 4 }),
    'tensor "blk.1.ffn_gate_inp.weight"',
  ],
  [
    "experts with gates",
    () => fileWith("nomic-bert-moe", {}, { "blk.1.ffn_gate_exps": [WIDTH, FEED_FORWARD, EXPERTS] }),
    'tensor "blk.1.ffn_gate_exps.weight"',
  ],
  ["an unknown pooling", () => fileWith("bert", { pooling_type: 9 }), 'key "bert.pooling_type"'],
  ["a head without labels", () => fileWith("bert", { pooling_type: 4 }), 'tensor "cls.output.weight"'],
  [
    "heads that do not divide the width",
    () => fileWith("bert", { "attention.head_count": 5 }),
    'key "bert.attention.head_count"',
  ],
  [
    "heads of 8 dimensions",
    () => fileWith("bert", { "attention.head_count": 8 }),
    'key "bert.attention.key_length"',
  ],
  [
    "fewer positions than the context",
    () => fileWith("bert", {}, { position_embd: [WIDTH, CONTEXT - 1] }),
    'tensor "position_embd.weight"',
  ],
  ["no positions", () => fileWith("bert", {}, { position_embd: undefined }), 'tensor "position_embd.weight"'],
  [
    "positions where keys are rotated",
    () => fileWith("nomic-bert", {}, { position_embd: [WIDTH, CONTEXT] }),
    'tensor "position_embd.weight"',
  ],
  [
    "other token types than the key says",
    () => fileWith("bert", { "tokenizer.ggml.token_type_count": 3 }),
    'tensor "token_types.weight"',
  ],
  [
    "token types of another width",
    () => fileWith("bert", {}, { token_types: [WIDTH / 2, 2] }),
    'tensor "token_types.weight"',
  ],
  [
    "no norm of the embeddings",
    () => fileWith("bert", {}, { token_embd_norm: undefined }),
    'tensor "token_embd_norm.weight"',
  ],
  [
    "no norm after a layer",
    () => fileWith("bert", {}, { "blk.1.layer_output_norm": undefined }),
    'tensor "blk.1.layer_output_norm.weight"',
  ],
  [
    "a feed-forward half of one part",
    () => fileWith("modern-bert", {}, { "blk.0.ffn_up": [WIDTH, FEED_FORWARD] }),
    'tensor "blk.0.ffn_up.weight"',
  ],
  [
    "a norm before the first layer, which has none",
    () => fileWith("modern-bert", {}, { "blk.0.attn_norm": [WIDTH] }),
    'tensor "blk.0.attn_norm.weight"',
  ],
  ...NAMES.map((name) =>
    [
      `causal attention in ${name}`,
      () => fileWith(name, { "attention.causal": true }),
      `key "${name}.attention.causal"`,
    ] as const
  ),
  [
    "another strength of ALiBi",
    () => fileWith("jina-bert-v2", { "attention.max_alibi_bias": 4 }),
    'key "jina-bert-v2.attention.max_alibi_bias"',
  ],
  [
    "heads that are normed, as those of Jina's model for code",
    () => fileWith("jina-bert-v2", {}, { "blk.0.attn_q_norm": [WIDTH] }),
    'tensor "blk.0.attn_q_norm.weight"',
  ],
  [
    "a feed-forward half without a gate",
    () => fileWith("jina-bert-v2", {}, { "blk.1.ffn_up": [WIDTH, FEED_FORWARD] }),
    'tensor "blk.1.ffn_up.weight"',
  ],
  [
    "fewer KV heads",
    () => fileWith("neo-bert", { "attention.head_count_kv": 2 }),
    'key "neo-bert.attention.head_count_kv"',
  ],
  [
    "another last norm",
    () => fileWith("neo-bert", {}, { "enc.output_norm": undefined, output_norm: [WIDTH] }),
    'tensor "enc.output_norm.weight"',
  ],
  [
    "heads whose matrices are apart",
    () => fileWith("neo-bert", {}, { "blk.0.attn_qkv": undefined, "blk.0.attn_q": [WIDTH, WIDTH] }),
    'tensor "blk.0.attn_qkv.weight"',
  ],
  ["experts", () => fileWith("jina-bert-v3", { expert_count: 8 }), 'key "jina-bert-v3.expert_count"'],
  [
    "positions that are learned",
    () => fileWith("jina-bert-v3", {}, { position_embd: [WIDTH, CONTEXT] }),
    'tensor "position_embd.weight"',
  ],
  [
    "a gate where there is none",
    () => fileWith("jina-bert-v3", {}, { "blk.0.ffn_gate": [WIDTH, FEED_FORWARD] }),
    'tensor "blk.0.ffn_gate.weight"',
  ],
  [
    "another kind of epsilon",
    () => fileWith("eurobert", { ...KEYS, "attention.layer_norm_rms_epsilon": undefined }),
    'key "eurobert.attention.layer_norm_rms_epsilon"',
  ],
  ["a head that ranks", () => fileWith("eurobert", { pooling_type: 4 }), 'tensor "cls.output.weight"'],
  [
    "a head that ranks",
    () => fileWith("llama-embed", { pooling_type: 4 }, { "cls.output": [WIDTH, 1] }),
    'key "llama-embed.pooling_type"',
  ],
  [
    "no last norm",
    () => fileWith("eurobert", {}, { output_norm: undefined }),
    'tensor "output_norm.weight"',
  ],
  [
    "a matrix for logits",
    () => fileWith("eurobert", {}, { output: [WIDTH, TOKENS.length] }),
    'tensor "output.weight"',
  ],
  [
    "fewer KV heads than its matrices have",
    () => fileWith("llama-embed", { "attention.head_count_kv": 1 }),
    'tensor "blk.0.attn_k.weight"',
  ],
  ["experts", () => fileWith("llama-embed", { expert_count: 8 }), 'key "llama-embed.expert_count"'],
  [
    "an activation that is not computed",
    () => fileWith("modern-bert", { hidden_activation: "relu" }),
    'key "modern-bert.hidden_activation"',
  ],
  [
    "a base of 0 in sliding layers",
    () => fileWith("modern-bert", { "rope.freq_base_swa": 0 }),
    'key "modern-bert.rope.freq_base_swa"',
  ],
];

for (const [what, file, field] of BAD) {
  Deno.test(`encoders: refuses a file with ${what} (${field})`, () => {
    const error = assertThrows(() => buildPlan(file()), GgufError);
    assertEquals(error.field, field, error.message);
  });
}
