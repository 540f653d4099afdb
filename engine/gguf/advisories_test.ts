/** Files that replay published advisories on other GGUF readers. Each test is named after its advisory. */

import { type BadFile, keyField as key, tensorField as tensor, testBadFiles } from "./bad_files.ts";
import { readHparams } from "./hparams/hparams.ts";
import { parseGguf } from "./reader.ts";
import { GgufBuilder, smallModel } from "./testing.ts";
import { readVocabulary } from "./vocabulary.ts";

const text = (value: string) => new TextEncoder().encode(value);

/** Returns a builder with tensors `t0`, `t1`, … of one F32 each, whose entries a test then corrupts. */
function tensors(count: number): () => GgufBuilder {
  return () => {
    const builder = new GgufBuilder();
    for (let i = 0; i < count; i++) builder.tensor(`t${i}`, "F32", [1, 1]);
    return builder;
  };
}

const SIZES: BadFile[] = [
  {
    what: "CVE-2025-53630 (llama.cpp): the sum of the padded tensor sizes wraps at 2^64",
    code: "GGUF_SHAPE",
    at: "t0/dim1",
    field: tensor("t0"),
    base: tensors(2),
    spoil: (file) =>
      file.u64("t0/dim0", 2n ** 31n).u64("t0/dim1", 2n ** 31n - 1n)
        .u64("t1/dim0", 2n ** 31n).u64("t1/dim1", 2n ** 31n).u64("t1/offset", -(2n ** 33n)),
  },
  {
    what: "CVE-2025-53630 (llama.cpp): sizes of 2^51 bytes each, whose sum goes on",
    code: "GGUF_OFFSET",
    at: "t4/offset",
    field: tensor("t4"),
    base: tensors(8),
    spoil: (file) => {
      for (let i = 0; i < 8; i++) {
        file.u64(`t${i}/dim0`, 2n ** 49n).u64(`t${i}/offset`, 2n ** 51n * BigInt(i));
      }
    },
  },
  {
    what: "CVE-2026-27940 (llama.cpp): data of nearly 2^64 bytes, to which the overhead is added",
    code: "GGUF_SHAPE",
    at: "t0/dim1",
    field: tensor("t0"),
    base: tensors(1),
    spoil: (file) => file.u64("t0/dim0", 2n ** 32n - 8n).u64("t0/dim1", 2n ** 30n),
  },
  {
    what: "CVE-2026-33298 (llama.cpp): dimensions whose size in bytes wraps to some MB",
    code: "GGUF_SHAPE",
    at: "t0/dim1",
    field: tensor("t0"),
    base: tensors(1),
    spoil: (file) => file.u64("t0/dim0", 2n ** 32n).u64("t0/dim1", 2n ** 30n + 2n ** 8n),
  },
  {
    what: "CVE-2026-7482 (Ollama): a tensor declared larger than the file",
    code: "GGUF_TRUNCATED",
    at: "t0/offset",
    field: tensor("t0"),
    base: tensors(1),
    spoil: (file) => file.u64("t0/dim0", 1_000_000),
  },
  {
    what: "CVE-2026-7482 (Ollama): a tensor declared behind the end of the file",
    code: "GGUF_OFFSET",
    at: "t0/offset",
    field: tensor("t0"),
    base: tensors(1),
    spoil: (file) => file.u64("t0/offset", 2n ** 30n),
  },
  {
    what: "CVE-2024-21802 (llama.cpp, TALOS): dimensions trusted without a bound",
    code: "GGUF_SHAPE",
    at: "t0/rank",
    field: tensor("t0"),
    base: tensors(1),
    spoil: (file) => file.u32("t0/rank", 0x40),
  },
  {
    what: "GHSA-3p75-pq92-q28f (llama.cpp): division by a dimension of 0",
    code: "GGUF_SHAPE",
    at: "t0/dim1",
    field: tensor("t0"),
    base: tensors(1),
    spoil: (file) => file.u64("t0/dim1", 0),
  },
  {
    what: "ggml-org/llama.cpp#8816: division by the block size of a removed type",
    code: "GGUF_TENSOR_TYPE",
    at: "t0/type",
    field: tensor("t0"),
    base: tensors(1),
    spoil: (file) => file.u32("t0/type", 4),
  },
];

const HEADERS: BadFile[] = [
  {
    what: "CVE-2024-21825 (llama.cpp, TALOS): an array of strings whose count wraps when multiplied",
    code: "GGUF_ARRAY",
    at: "a/count",
    field: key("a"),
    base: () => new GgufBuilder().array("a", "STRING", ["x"]),
    spoil: (file) => file.u64("a/count", 2n ** 60n + 1n),
  },
  {
    what: "CVE-2024-21836 (llama.cpp, TALOS): a tensor count that wraps when multiplied",
    code: "GGUF_COUNT",
    at: "tensorCount",
    field: "tensor count",
    base: tensors(1),
    spoil: (file) => file.u64("tensorCount", 2n ** 59n + 1n),
  },
  {
    what: "CVE-2024-23496 (llama.cpp, TALOS): a string of 2^64-1 bytes, to which 1 is added",
    code: "GGUF_STRING",
    at: "a/value",
    field: key("a"),
    base: () => new GgufBuilder().set("a", "STRING", "x"),
    spoil: (file) => file.u64("a/value", -1),
  },
  {
    what: "CVE-2024-23605 (llama.cpp, TALOS): a key-value count that wraps when multiplied",
    code: "GGUF_COUNT",
    at: "keyValueCount",
    field: "key-value count",
    base: tensors(1),
    spoil: (file) => file.u64("keyValueCount", 2n ** 59n + 1n),
  },
  {
    what: "CVE-2024-39720 (Ollama): a file of the four bytes of the magic",
    code: "GGUF_TRUNCATED",
    at: "version",
    field: "version",
    spoil: () => text("GGUF"),
  },
  {
    what: "CVE-2025-0317 (Ollama): padding to an alignment of 0",
    code: "GGUF_ALIGN",
    at: "general.alignment/value",
    field: key("general.alignment"),
    base: () => smallModel().set("general.alignment", "UINT32", 0),
  },
];

const HPARAMS: BadFile[] = [
  ...["block_count", "attention.head_count", "attention.head_count_kv", "embedding_length"].map((
    name,
  ): BadFile => ({
    what: `zero hyper-parameters (Ollama divides by them): ${name}`,
    code: "GGUF_HPARAM",
    at: `llama.${name}/value`,
    field: key(`llama.${name}`),
    base: () => smallModel().set(`llama.${name}`, "UINT32", 0),
  })),
  {
    what: "CVE-2024-8063 (Ollama): a block count of another type",
    code: "GGUF_HPARAM",
    at: "llama.block_count/value",
    field: key("llama.block_count"),
    base: () => smallModel().set("llama.block_count", "STRING", "1"),
  },
];

const VOCABULARIES: BadFile[] = [
  {
    what: "CVE-2025-49847 (llama.cpp): a token whose length is negative as 32 bits",
    code: "GGUF_STRING",
    at: "tokenizer.ggml.tokens/elements",
    field: key("tokenizer.ggml.tokens"),
    spoil: (file) => file.u64("tokenizer.ggml.tokens/elements", 2n ** 31n),
    fileSize: 2 ** 40,
  },
  {
    what: "CVE-2025-49847 (llama.cpp): a token longer than any buffer for a piece",
    code: "GGUF_VOCAB",
    at: "tokenizer.ggml.tokens/value",
    field: key("tokenizer.ggml.tokens"),
    base: () => smallModel().array("tokenizer.ggml.tokens", "STRING", ["t", "x".repeat(2 ** 20)]),
  },
  {
    what: "CVE-2025-52566 (llama.cpp): a chat template that gives more tokens than 32 bits count",
    code: "GGUF_STRING",
    at: "tokenizer.chat_template/value",
    field: key("tokenizer.chat_template"),
    base: () => smallModel().set("tokenizer.chat_template", "STRING", "{{ messages }}"),
    spoil: (file) => file.u64("tokenizer.chat_template/value", 2n ** 32n),
    fileSize: 2 ** 40,
  },
  {
    what: "GHSA-g4cc-763q-h9h6 (llama.cpp): a special token outside the vocabulary",
    code: "GGUF_VOCAB",
    at: "tokenizer.ggml.eos_token_id/value",
    field: key("tokenizer.ggml.eos_token_id"),
    base: () => smallModel().set("tokenizer.ggml.eos_token_id", "UINT32", 0x7fffffff),
  },
];

testBadFiles(parseGguf, [...SIZES, ...HEADERS]);
testBadFiles((bytes) => readHparams(parseGguf(bytes)), HPARAMS);
testBadFiles((bytes, fileSize) => readVocabulary(parseGguf(bytes, fileSize).metadata), VOCABULARIES);
