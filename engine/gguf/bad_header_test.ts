import { type BadFile, keyField as key, tensorField as tensor, testBadFiles } from "./bad_files.ts";
import { VALUE_TYPES } from "./key_values.ts";
import { parseGguf } from "./reader.ts";
import { type BuiltGguf, GgufBuilder, smallModel } from "./testing.ts";

const TENSOR = "blk.0.attn_q.weight";
const NEXT = "blk.0.attn_k.weight";
const NAME = "general.name";
const TOKENS = "tokenizer.ggml.tokens";
const TERABYTE = 2 ** 40;

const text = (value: string) => new TextEncoder().encode(value);
const u32 = (...values: number[]) => new Uint8Array(Uint32Array.from(values).buffer);

/** Returns a file with arrays nested `depth` deep around an empty array. */
function nested(depth: number): GgufBuilder {
  const levels = Array.from({ length: depth }, () => u32(9, 1, 0));
  const innermost = u32(4, 0, 0);
  return smallModel().raw(
    "bomb",
    9,
    new Uint8Array([...levels.flatMap((level) => [...level]), ...innermost]),
  );
}

const MAGIC: BadFile[] = [
  ...[0, 1, 2, 3].map((length): BadFile => ({
    what: `a file of ${length} bytes`,
    code: "GGUF_MAGIC",
    at: "magic",
    field: "magic",
    spoil: (file) => file.bytes.subarray(0, length),
  })),
  ...["GGML", "ggjt", "GGUf", "PK\x03\x04", "\0\0\0\0", "vers"].map((magic): BadFile => ({
    what: `magic ${JSON.stringify(magic)}`,
    code: "GGUF_MAGIC",
    at: "magic",
    field: "magic",
    spoil: (file) => file.bytes.set(text(magic)),
  })),
  {
    what: "magic of a byte-swapped file",
    code: "GGUF_ENDIAN",
    at: "magic",
    field: "magic",
    spoil: (file) => file.bytes.set(text("FUGG")),
  },
  ...[0, 1, 4, 5, 0xffff, 0xffffffff].map((version): BadFile => ({
    what: `version ${version}`,
    code: "GGUF_VERSION",
    at: "version",
    field: "version",
    spoil: (file) => file.u32("version", version),
  })),
  ...[0x02000000, 0x03000000].map((version): BadFile => ({
    what: `big-endian version 0x${version.toString(16)}`,
    code: "GGUF_ENDIAN",
    at: "version",
    field: "version",
    spoil: (file) => file.u32("version", version),
  })),
];

const COUNTS: BadFile[] = [-1n, 2n ** 63n, 2n ** 62n, 2n ** 53n + 1n, 2n ** 32n, 100_000n].flatMap((
  count,
) => [
  {
    what: `tensor count ${count}`,
    code: "GGUF_COUNT" as const,
    at: "tensorCount",
    field: "tensor count",
    spoil: (file: BuiltGguf) => file.u64("tensorCount", count),
  },
  {
    what: `key-value count ${count}`,
    code: "GGUF_COUNT" as const,
    at: "keyValueCount",
    field: "key-value count",
    spoil: (file: BuiltGguf) => file.u64("keyValueCount", count),
  },
]);
COUNTS.push(
  {
    what: "more tensors than the cap, in a file that could hold them",
    code: "GGUF_COUNT",
    at: "tensorCount",
    field: "tensor count",
    spoil: (file) => file.u64("tensorCount", 1_000_000),
    fileSize: TERABYTE,
  },
  {
    what: "more key-values than the cap, in a file that could hold them",
    code: "GGUF_COUNT",
    at: "keyValueCount",
    field: "key-value count",
    spoil: (file) => file.u64("keyValueCount", 1_000_000),
    fileSize: TERABYTE,
  },
  {
    what: "one key-value too few: a key is read as a tensor's name",
    code: "GGUF_SHAPE",
    at: "tokenizer.ggml.add_bos_token/type",
    field: tensor("tokenizer.ggml.add_bos_token"),
    spoil: (file) => file.u64("keyValueCount", 21).u32("tokenizer.ggml.add_bos_token/type", 7),
  },
  {
    what: "one key-value too many: a tensor's name is read as a key",
    code: "GGUF_ARRAY",
    at: "token_embd.weight/dim0+4",
    field: key("token_embd.weight"),
    spoil: (file) =>
      file.u64("keyValueCount", 23).u32("token_embd.weight/rank", 9).u64("token_embd.weight/dim0", 5),
  },
);

const STRINGS: BadFile[] = [
  ...[-1n, 2n ** 63n, 2n ** 53n, 2n ** 31n, 100_000n].flatMap((length): BadFile[] => [
    {
      what: `key of length ${length}`,
      code: "GGUF_STRING",
      at: `${NAME}/length`,
      field: "key 1",
      spoil: (file) => file.u64(`${NAME}/length`, length),
    },
    {
      what: `value of length ${length}`,
      code: "GGUF_STRING",
      at: `${NAME}/value`,
      field: key(NAME),
      spoil: (file) => file.u64(`${NAME}/value`, length),
    },
    {
      what: `tensor name of length ${length}`,
      code: "GGUF_STRING",
      at: `${TENSOR}/length`,
      field: "name of tensor 2",
      spoil: (file) => file.u64(`${TENSOR}/length`, length),
    },
    {
      what: `token of length ${length}`,
      code: "GGUF_STRING",
      at: `${TOKENS}/elements`,
      field: key(TOKENS),
      spoil: (file) => file.u64(`${TOKENS}/elements`, length),
    },
  ]),
  {
    what: "a key of 64 KiB",
    code: "GGUF_STRING",
    at: 24,
    field: "key 0",
    base: () => new GgufBuilder().set("k".repeat(65_536), "UINT8", 0),
  },
  {
    what: "a string over the cap, in a file that could hold it",
    code: "GGUF_STRING",
    at: `${NAME}/value`,
    field: key(NAME),
    spoil: (file) => file.u64(`${NAME}/value`, 20_000_000),
    fileSize: TERABYTE,
  },
  {
    what: "a tensor name of 65 bytes",
    code: "GGUF_STRING",
    at: `${"n".repeat(65)}/length`,
    field: "name of tensor 0",
    base: () => new GgufBuilder().tensor("n".repeat(65), "F32", [1]),
  },
  {
    what: "an empty key",
    code: "GGUF_STRING",
    at: "/length",
    field: "key 1",
    base: () => new GgufBuilder().set("a", "UINT8", 1).set("", "UINT8", 0),
  },
  {
    what: "an empty tensor name",
    code: "GGUF_STRING",
    at: "/length",
    field: "name of tensor 0",
    base: () => new GgufBuilder().tensor("", "F32", [1]),
  },
  ...[[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf5, 0x80, 0x80, 0x80], [0x80], [0xe2, 0x82]].map(
    (bytes): BadFile => ({
      what: `bytes ${bytes.map((byte) => byte.toString(16)).join(" ")} in a string`,
      code: "GGUF_STRING",
      at: "broken/value+8",
      field: key("broken"),
      base: () => smallModel().raw("broken", 8, new Uint8Array([...u32(bytes.length, 0), ...bytes])),
    }),
  ),
  {
    what: "a key that is not UTF-8",
    code: "GGUF_STRING",
    at: `${NAME}/name`,
    field: "key 1",
    spoil: (file) => file.u8(`${NAME}/name`, 0xfe),
  },
  {
    what: "a tensor name that is not UTF-8",
    code: "GGUF_STRING",
    at: `${TENSOR}/name`,
    field: "name of tensor 2",
    spoil: (file) => file.u8(`${TENSOR}/name`, 0xc3),
  },
  {
    what: "two tokens that are only together UTF-8",
    code: "GGUF_STRING",
    at: "halves/value+20",
    field: key("halves"),
    base: () =>
      smallModel().raw("halves", 9, new Uint8Array([...u32(8, 2, 0, 1, 0), 0xc3, ...u32(1, 0), 0xa9])),
  },
];

const VALUES: BadFile[] = [
  ...[13, 14, 255, 0x7fffffff, 0xffffffff].flatMap((type): BadFile[] => [
    {
      what: `value type ${type}`,
      code: "GGUF_KV_TYPE",
      at: `${NAME}/type`,
      field: key(NAME),
      spoil: (file) => file.u32(`${NAME}/type`, type),
    },
    {
      what: `element type ${type}`,
      code: "GGUF_KV_TYPE",
      at: `${TOKENS}/elementType`,
      field: key(TOKENS),
      spoil: (file) => file.u32(`${TOKENS}/elementType`, type),
    },
  ]),
  ...[2, 128, 255].map((value): BadFile => ({
    what: `a boolean of ${value}`,
    code: "GGUF_KV_TYPE",
    at: "tokenizer.ggml.add_bos_token/value",
    field: key("tokenizer.ggml.add_bos_token"),
    spoil: (file) => file.u8("tokenizer.ggml.add_bos_token/value", value),
  })),
  {
    what: "a boolean of 2 in an array",
    code: "GGUF_KV_TYPE",
    at: "flags/value+14",
    field: key("flags"),
    base: () => smallModel().raw("flags", 9, new Uint8Array([...u32(7, 3, 0), 1, 0, 2])),
  },
  // Counts whose product with the element size overflows 64 bits.
  ...VALUE_TYPES.map((type, id) => ({ type, id })).filter(({ type }) => type !== "ARRAY").map((
    { type, id },
  ): BadFile => ({
    what: `2^62 elements of ${type}`,
    code: "GGUF_ARRAY",
    at: `${TOKENS}/count`,
    field: key(TOKENS),
    spoil: (file) => file.u32(`${TOKENS}/elementType`, id).u64(`${TOKENS}/count`, 2n ** 62n),
  })),
  ...[-1n, 2n ** 61n + 1n, 2n ** 32n, 5_000n].map((count): BadFile => ({
    what: `an array of ${count} strings`,
    code: "GGUF_ARRAY",
    at: `${TOKENS}/count`,
    field: key(TOKENS),
    spoil: (file) => file.u64(`${TOKENS}/count`, count),
  })),
  {
    what: "an array of 2^30 bytes in a file that could hold it",
    code: "GGUF_ARRAY",
    at: `${TOKENS}/count`,
    field: key(TOKENS),
    spoil: (file) => file.u32(`${TOKENS}/elementType`, 0).u64(`${TOKENS}/count`, 2 ** 30),
    fileSize: TERABYTE,
  },
  {
    what: "an array of five million strings in a file that could hold it",
    code: "GGUF_ARRAY",
    at: `${TOKENS}/count`,
    field: key(TOKENS),
    spoil: (file) => file.u64(`${TOKENS}/count`, 5_000_000),
    fileSize: TERABYTE,
  },
  ...[1, 2, 20_000].map((depth): BadFile => ({
    what: `arrays of arrays, ${depth} deep`,
    code: "GGUF_ARRAY",
    at: "bomb/value",
    field: key("bomb"),
    base: () => nested(depth),
  })),
  {
    what: "arrays that hold more booleans together than a file may",
    code: "GGUF_ARRAY",
    at: "second/value+4",
    field: key("second"),
    base: () => {
      const flags = new Uint8Array(2_000_012);
      flags.set(u32(7, 2_000_000, 0));
      return new GgufBuilder().raw("first", 9, flags).raw("second", 9, flags);
    },
  },
];

const DUPLICATES: BadFile[] = [
  {
    what: "a key twice",
    code: "GGUF_DUPLICATE",
    at: "twicf/length",
    field: key("twice"),
    base: () => smallModel().set("twice", "UINT8", 1).set("twicf", "UINT8", 1),
    spoil: (file) => file.bytes.set(text("twice"), file.at("twicf/name")),
  },
  {
    what: "a tensor twice",
    code: "GGUF_DUPLICATE",
    at: `${NEXT}/length`,
    field: tensor(TENSOR),
    spoil: (file) => file.bytes.set(text(TENSOR), file.at(`${NEXT}/name`)),
  },
];

const ALIGNMENTS: BadFile[] = [0, 1, 3, 4, 24, 33, 2 ** 21, 2 ** 31, 0xffffffff].map((alignment) => ({
  what: `alignment ${alignment}`,
  code: "GGUF_ALIGN",
  at: "general.alignment/value",
  field: key("general.alignment"),
  base: () => smallModel().set("general.alignment", "UINT32", alignment),
}));
for (const [type, value] of [["UINT64", 32], ["INT32", 32], ["FLOAT32", 32], ["STRING", "32"]] as const) {
  ALIGNMENTS.push({
    what: `alignment of type ${type}`,
    code: "GGUF_ALIGN",
    at: "general.alignment/value",
    field: key("general.alignment"),
    base: () => smallModel().set("general.alignment", type, value),
  });
}

testBadFiles(parseGguf, [MAGIC, COUNTS, STRINGS, VALUES, DUPLICATES, ALIGNMENTS].flat());
