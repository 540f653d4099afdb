import { assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "./errors.ts";
import { readHparams, requireTensor, type RopeScaling } from "./hparams/hparams.ts";
import { parseGguf } from "./reader.ts";
import { type GgufBuilder, smallModel } from "./testing.ts";
import { readVocabulary } from "./vocabulary.ts";

const hparams = (model: GgufBuilder) => readHparams(parseGguf(model.build().bytes));
const vocabulary = (model: GgufBuilder) => readVocabulary(parseGguf(model.build().bytes).metadata);

Deno.test("hyper-parameters: are read from the file's keys", () => {
  assertEquals(hparams(smallModel()), {
    architecture: "llama",
    blockCount: 1,
    contextLength: 128,
    embeddingLength: 32,
    feedForwardLength: 64,
    headCount: 4,
    headCountKv: 2,
    layers: [{ heads: 4, kvHeads: 2, feedForwardLength: 64 }],
    keyLength: 8,
    valueLength: 8,
    ropeDimensionCount: 8,
    ropeFreqBase: 10_000,
    ropeScaling: { type: "none", factor: 1 },
    ropeMagnitude: 1,
    ropeOriginalContext: 128,
    epsilon: Math.fround(1e-5),
    vocabSize: 8,
  });
});

Deno.test("hyper-parameters: missing optional keys have llama.cpp's defaults", () => {
  const model = smallModel();
  for (const name of ["attention.head_count_kv", "attention.key_length", "attention.value_length"]) {
    model.delete(`llama.${name}`);
  }
  model.delete("llama.rope.dimension_count").delete("llama.rope.freq_base");
  const { headCountKv, keyLength, valueLength, ropeDimensionCount, ropeFreqBase } = hparams(model);
  assertEquals([headCountKv, keyLength, valueLength, ropeDimensionCount, ropeFreqBase], [4, 8, 8, 8, 10_000]);
});

Deno.test("hyper-parameters: keys have the architecture's prefix", () => {
  const model = smallModel().set("general.architecture", "STRING", "qwen3").set(
    "qwen3.block_count",
    "UINT32",
    2,
  );
  assertEquals(assertThrows(() => hparams(model), GgufError).field, `key "qwen3.embedding_length"`);
});

Deno.test("hyper-parameters: the head count need not divide the embedding length when the file has the head length", () => {
  const model = smallModel().set("llama.attention.head_count", "UINT32", 5);
  assertEquals(hparams(model.set("llama.attention.head_count_kv", "UINT32", 1)).keyLength, 8);
});

Deno.test("hyper-parameters: a key may be an array of equal values, one per layer", () => {
  const model = smallModel().set("llama.block_count", "UINT32", 3);
  model.array("llama.attention.head_count_kv", "UINT32", [2, 2, 2]);
  model.array("llama.feed_forward_length", "INT32", [64, 64, 64]);
  assertEquals([hparams(model).headCountKv, hparams(model).feedForwardLength], [2, 64]);
});

const SCALINGS: [
  keys: Record<string, number | string>,
  scaling: RopeScaling,
][] = [
  [{ "rope.scaling.type": "none", "rope.scaling.factor": 4 }, { type: "none", factor: 1 }],
  [{ "rope.scaling.type": "linear", "rope.scaling.factor": 4 }, { type: "linear", factor: 4 }],
  [{ "rope.scaling.factor": 2 }, { type: "linear", factor: 2 }],
  [{ "rope.scale_linear": 8 }, { type: "linear", factor: 8 }],
  [{ "rope.scaling.type": "linear" }, { type: "none", factor: 1 }],
  [{ "rope.scaling.factor": 0 }, { type: "none", factor: 1 }],
  [{ "rope.scaling.type": "longrope" }, { type: "longrope", factor: 1 }],
  [{ "rope.scaling.type": "yarn" }, { type: "none", factor: 1 }],
  [{ "rope.scaling.type": "yarn", "rope.scaling.factor": 4 }, {
    type: "yarn",
    factor: 4,
    originalContext: 128,
    betaFast: 32,
    betaSlow: 1,
    logMultiplier: 0,
  }],
  [{ "rope.scaling.type": "yarn", "rope.scaling.factor": 4, "rope.scaling.yarn_log_multiplier": 0.5 }, {
    type: "yarn",
    factor: 4,
    originalContext: 128,
    betaFast: 32,
    betaSlow: 1,
    logMultiplier: 0.5,
  }],
];
for (const [keys, scaling] of SCALINGS) {
  Deno.test(`hyper-parameters: reads RoPE scaling ${JSON.stringify(keys)}`, () => {
    const model = smallModel();
    for (const [name, value] of Object.entries(keys)) {
      model.set(`llama.${name}`, typeof value === "string" ? "STRING" : "FLOAT32", value);
    }
    assertEquals(hparams(model).ropeScaling, scaling);
  });
}

Deno.test("hyper-parameters: the vocabulary size of a file without weights is its number of tokens, or the value of the key", () => {
  const model = smallModel();
  for (const { name } of parseGguf(model.build().bytes).tensors.values()) model.deleteTensor(name);
  assertEquals(hparams(model).vocabSize, 8);
  model.delete("tokenizer.ggml.tokens").set("llama.vocab_size", "UINT32", 99);
  assertEquals(hparams(model).vocabSize, 99);
});

Deno.test("requireTensor: returns a tensor of the right shape and refuses others", () => {
  const file = parseGguf(smallModel().build().bytes);
  assertEquals(requireTensor(file, "blk.0.attn_k.weight", [32, 16]).type, "Q8_0");
  for (const shape of [[16, 32], [32], [32, 16, 1]]) {
    const error = assertThrows(() => requireTensor(file, "blk.0.attn_k.weight", shape), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "blk.0.attn_k.weight"`]);
  }
  const missing = assertThrows(() => requireTensor(file, "output.weight", [32, 8]), GgufError);
  assertEquals(missing.message, `GGUF_HPARAM tensor "output.weight": missing; must have shape 32 x 8`);
});

Deno.test("vocabulary: returns tables of equal length", () => {
  const { model, tokens, ids, scores, tokenTypes, merges } = vocabulary(smallModel());
  assertEquals([model, tokens.length, scores!.length, tokenTypes!.length], ["gpt2", 8, 8, 8]);
  assertEquals([ids.get("</s>"), merges], [7, ["t h", "th e"]]);
});

Deno.test("vocabulary: a byte-level BPE may lack scores and token types", () => {
  const model = smallModel().delete("tokenizer.ggml.scores").delete("tokenizer.ggml.token_type");
  assertEquals([vocabulary(model).scores, vocabulary(model).tokenTypes], [undefined, undefined]);
});

Deno.test("vocabulary: a SentencePiece vocabulary may lack merges", () => {
  const model = smallModel().set("tokenizer.ggml.model", "STRING", "llama").delete("tokenizer.ggml.merges");
  assertEquals(vocabulary(model).merges, undefined);
});

Deno.test("vocabulary: accepts several tokens without text", () => {
  const tokens = ["t", "h", "e", "th", "the", "", "", "x"];
  const { ids } = vocabulary(smallModel().array("tokenizer.ggml.tokens", "STRING", tokens));
  assertEquals([ids.get("x"), ids.has("")], [7, false]);
});

Deno.test("vocabulary: accepts unused special tokens out of range", () => {
  const model = smallModel();
  for (const name of ["padding", "seperator", "mask", "cls", "image"]) {
    model.set(`tokenizer.ggml.${name}_token_id`, "UINT32", 0xffffffff);
  }
  assertEquals(vocabulary(model).tokens.length, 8);
});

Deno.test("vocabulary: either token of a merge may begin with a space", () => {
  const model = smallModel().array("tokenizer.ggml.tokens", "STRING", [
    "t",
    " ",
    " t",
    "h",
    "e",
    "x",
    "<s>",
    "</s>",
  ]);
  assertEquals(vocabulary(model.array("tokenizer.ggml.merges", "STRING", ["  t"])).merges, ["  t"]);
});
