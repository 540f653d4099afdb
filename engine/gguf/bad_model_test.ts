import { type BadFile, keyField as key, tensorField as tensor, testBadFiles } from "./bad_files.ts";
import { readHparams } from "./hparams/hparams.ts";
import { parseGguf } from "./reader.ts";
import { type GgufBuilder, smallModel } from "./testing.ts";
import { readVocabulary } from "./vocabulary.ts";

/** Returns a function that makes the small model with a change. */
const changed = (change: (model: GgufBuilder) => GgufBuilder) => () => change(smallModel());

const REQUIRED = [
  "general.architecture",
  "llama.block_count",
  "llama.context_length",
  "llama.embedding_length",
  "llama.feed_forward_length",
  "llama.attention.head_count",
  "llama.attention.layer_norm_rms_epsilon",
];

const COUNTS = [
  "llama.block_count",
  "llama.context_length",
  "llama.embedding_length",
  "llama.feed_forward_length",
  "llama.attention.head_count",
  "llama.attention.head_count_kv",
  "llama.attention.key_length",
  "llama.attention.value_length",
  "llama.rope.dimension_count",
];

const HPARAMS: BadFile[] = [
  ...REQUIRED.map((name): BadFile => ({
    what: `no ${name}`,
    code: "GGUF_HPARAM",
    at: undefined,
    field: key(name),
    base: changed((model) => model.delete(name)),
  })),
  ...COUNTS.flatMap((name) =>
    ([["UINT32", 0], ["INT32", -1], ["UINT32", 0xffffffff], ["UINT64", 2n ** 63n], ["FLOAT32", 1.5]] as const)
      .map(
        ([type, value]): BadFile => ({
          what: `${name} of ${type} ${value}`,
          code: "GGUF_HPARAM",
          at: `${name}/value`,
          field: key(name),
          base: changed((model) => model.set(name, type, value)),
        }),
      )
  ),
  ...[NaN, Infinity, -Infinity, 0, -1e-5, 2].flatMap((value) =>
    ["llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"].map((name): BadFile => ({
      what: `${name} of ${value}`,
      code: "GGUF_HPARAM",
      at: `${name}/value`,
      field: key(name),
      // A frequency base of 2 is valid.
      base: changed((model) =>
        model.set(name, "FLOAT32", name.endsWith("base") && value === 2 ? 1e30 : value)
      ),
    }))
  ),
  ...[3, 8].map((heads): BadFile => ({
    what: `${heads} kv heads for 4 heads`,
    code: "GGUF_HPARAM",
    at: "llama.attention.head_count_kv/value",
    field: key("llama.attention.head_count_kv"),
    base: changed((model) => model.set("llama.attention.head_count_kv", "UINT32", heads)),
  })),
  {
    what: "5 heads in 32 dimensions, and no key_length",
    code: "GGUF_HPARAM",
    at: "llama.attention.head_count/value",
    field: key("llama.attention.head_count"),
    base: changed((model) =>
      model.set("llama.attention.head_count", "UINT32", 5).set("llama.attention.head_count_kv", "UINT32", 5)
        .delete("llama.attention.key_length")
    ),
  },
  ...["llama.attention.key_length", "llama.rope.dimension_count"].map((name): BadFile => ({
    what: `an odd ${name}`,
    code: "GGUF_HPARAM",
    at: `${name}/value`,
    field: key(name),
    base: changed((model) => model.set(name, "UINT32", 7)),
  })),
  {
    what: "more rotated dimensions than a head has",
    code: "GGUF_HPARAM",
    at: "llama.rope.dimension_count/value",
    field: key("llama.rope.dimension_count"),
    base: changed((model) => model.set("llama.rope.dimension_count", "UINT32", 10)),
  },
  ...[[2, 2], [], [0], [3]].map((heads): BadFile => ({
    what: `kv heads [${heads}] for the one layer`,
    code: "GGUF_HPARAM",
    at: "llama.attention.head_count_kv/value",
    field: key("llama.attention.head_count_kv"),
    base: changed((model) => model.array("llama.attention.head_count_kv", "UINT32", heads)),
  })),
  {
    what: "kv heads that differ from layer to layer",
    code: "GGUF_HPARAM",
    at: "llama.attention.head_count_kv/value",
    field: key("llama.attention.head_count_kv"),
    base: changed((model) =>
      model.set("llama.block_count", "UINT32", 2).array("llama.attention.head_count_kv", "UINT32", [2, 4])
    ),
  },
  ...["su", "dynamic", ""].map((type): BadFile => ({
    what: `rope scaling of type ${JSON.stringify(type)}`,
    code: "GGUF_HPARAM",
    at: "llama.rope.scaling.type/value",
    field: key("llama.rope.scaling.type"),
    base: changed((model) => model.set("llama.rope.scaling.type", "STRING", type)),
  })),
  ...[-1, NaN, Infinity, 1e9].map((factor): BadFile => ({
    what: `a rope scaling factor of ${factor}`,
    code: "GGUF_HPARAM",
    at: "llama.rope.scaling.factor/value",
    field: key("llama.rope.scaling.factor"),
    base: changed((model) => model.set("llama.rope.scaling.factor", "FLOAT32", factor)),
  })),
  ...[
    ["rope.scaling.yarn_ext_factor", 0],
    ["rope.scaling.yarn_beta_fast", 0],
    ["rope.scaling.yarn_beta_slow", -1],
    ["rope.scaling.yarn_log_multiplier", -1],
    ["rope.scaling.attn_factor", -1],
    ["rope.scaling.attn_factor", NaN],
    ["rope.scaling.original_context_length", 1e9],
    ["rope.scaling.original_context_length", 0.5],
  ].map(([name, value]): BadFile => ({
    what: `YaRN with a ${name} of ${value}`,
    code: "GGUF_HPARAM",
    at: `llama.${name}/value`,
    field: key(`llama.${name}`),
    base: changed((model) =>
      model.set("llama.rope.scaling.type", "STRING", "yarn").set("llama.rope.scaling.factor", "FLOAT32", 4)
        .set(`llama.${name}`, Number.isInteger(value) && Number(value) > 1 ? "UINT32" : "FLOAT32", value)
    ),
  })),
  {
    what: "the first of two files of a model",
    code: "GGUF_HPARAM",
    at: "split.count/value",
    field: key("split.count"),
    base: changed((model) => model.set("split.count", "UINT16", 2)),
  },
  {
    what: "a mixture of experts",
    code: "GGUF_HPARAM",
    at: "llama.expert_count/value",
    field: key("llama.expert_count"),
    base: changed((model) => model.set("llama.expert_count", "UINT32", 8)),
  },
  {
    what: "attention that is not causal",
    code: "GGUF_HPARAM",
    at: "llama.attention.causal/value",
    field: key("llama.attention.causal"),
    base: changed((model) => model.set("llama.attention.causal", "BOOL", false)),
  },
  {
    what: "an architecture that is a number",
    code: "GGUF_HPARAM",
    at: "general.architecture/value",
    field: key("general.architecture"),
    base: changed((model) => model.set("general.architecture", "UINT32", 1)),
  },
  {
    what: "weights without a token embedding",
    code: "GGUF_HPARAM",
    at: undefined,
    field: tensor("token_embd.weight"),
    base: changed((model) => model.deleteTensor("token_embd.weight")),
  },
  ...[[64, 8], [8], [32, 8, 1, 2]].map((shape): BadFile => ({
    what: `a token embedding of shape ${shape.join(" x ")}`,
    code: shape.length === 1 ? "GGUF_VOCAB" : "GGUF_HPARAM",
    at: undefined,
    field: tensor("token_embd.weight"),
    base: changed((model) => model.tensor("token_embd.weight", "F32", shape)),
  })),
  ...[7, 9].map((rows): BadFile => ({
    what: `a token embedding of ${rows} rows for 8 tokens`,
    code: "GGUF_VOCAB",
    at: undefined,
    field: tensor("token_embd.weight"),
    base: changed((model) => model.tensor("token_embd.weight", "F32", [32, rows])),
  })),
];

const TOKENS = "tokenizer.ggml.tokens";
const SCORES = "tokenizer.ggml.scores";
const TYPES = "tokenizer.ggml.token_type";
const MERGES = "tokenizer.ggml.merges";

const VOCABULARY: BadFile[] = [
  {
    what: "no tokenizer model",
    code: "GGUF_HPARAM",
    at: undefined,
    field: key("tokenizer.ggml.model"),
    base: changed((model) => model.delete("tokenizer.ggml.model")),
  },
  {
    what: "no tokens",
    code: "GGUF_VOCAB",
    at: undefined,
    field: key(TOKENS),
    base: changed((model) => model.delete(TOKENS)),
  },
  {
    what: "an empty list of tokens",
    code: "GGUF_VOCAB",
    at: `${TOKENS}/value`,
    field: key(TOKENS),
    base: changed((model) => model.array(TOKENS, "STRING", [])),
  },
  {
    what: "tokens that are numbers",
    code: "GGUF_HPARAM",
    at: `${TOKENS}/value`,
    field: key(TOKENS),
    base: changed((model) => model.array(TOKENS, "UINT32", [1, 2])),
  },
  {
    what: "a token of 20,000 characters",
    code: "GGUF_VOCAB",
    at: `${TOKENS}/value`,
    field: key(TOKENS),
    base: changed((model) => model.array(TOKENS, "STRING", ["a", "b".repeat(20_000)])),
  },
  {
    what: "two tokens of one text",
    code: "GGUF_VOCAB",
    at: `${TOKENS}/value`,
    field: key(TOKENS),
    base: changed((model) => model.array(TOKENS, "STRING", ["t", "h", "e", "th", "the", "x", "y", "x"])),
  },
  ...[SCORES, TYPES].flatMap((name) =>
    [0, 7, 9].map((length): BadFile => ({
      what: `${length} elements of ${name} for 8 tokens`,
      code: "GGUF_VOCAB",
      at: `${name}/value`,
      field: key(name),
      base: changed((model) => model.array(name, "FLOAT32", new Array(length).fill(1))),
    }))
  ),
  {
    what: "a score of NaN",
    code: "GGUF_VOCAB",
    at: `${SCORES}/value`,
    field: key(SCORES),
    base: changed((model) => model.array(SCORES, "FLOAT32", [0, 0, 0, NaN, 0, 0, 0, 0])),
  },
  {
    what: "no scores in a SentencePiece vocabulary",
    code: "GGUF_VOCAB",
    at: undefined,
    field: key(SCORES),
    base: changed((model) => model.set("tokenizer.ggml.model", "STRING", "llama").delete(SCORES)),
  },
  ...[-1, 7, 2 ** 31 - 1].map((type): BadFile => ({
    what: `a token of type ${type}`,
    code: "GGUF_VOCAB",
    at: `${TYPES}/value`,
    field: key(TYPES),
    base: changed((model) => model.array(TYPES, "INT32", [1, 1, 1, 1, 1, type, 3, 3])),
  })),
  {
    what: "no merges in a byte-level BPE",
    code: "GGUF_VOCAB",
    at: undefined,
    field: key(MERGES),
    base: changed((model) => model.delete(MERGES)),
  },
  ...["th", "", " ", "t ", " t", "t x", "t h e x", "h t", "t  h"].map((merge): BadFile => ({
    what: `the merge ${JSON.stringify(merge)}`,
    code: "GGUF_VOCAB",
    at: `${MERGES}/value`,
    field: key(MERGES),
    base: changed((model) => model.array(MERGES, "STRING", ["t h", merge])),
  })),
  ...["bos", "eos", "eot", "eom", "unknown"].flatMap((name) =>
    ([["UINT32", 8], ["UINT32", 0xffffffff], ["INT32", -1], ["UINT64", 2n ** 63n]] as const).map(
      ([type, id]): BadFile => ({
        what: `${name} token of ${type} ${id} of 8 tokens`,
        code: "GGUF_VOCAB",
        at: `tokenizer.ggml.${name}_token_id/value`,
        field: key(`tokenizer.ggml.${name}_token_id`),
        base: changed((model) => model.set(`tokenizer.ggml.${name}_token_id`, type, id)),
      }),
    )
  ),
];

testBadFiles((bytes) => readHparams(parseGguf(bytes)), HPARAMS);
testBadFiles((bytes) => readVocabulary(parseGguf(bytes).metadata), VOCABULARY);
