import { type BadFile, tensorField as tensor, testBadFiles } from "./bad_files.ts";
import { parseGguf } from "./reader.ts";
import { GgufBuilder, smallModel } from "./testing.ts";
import { INTEGERS, layoutOfId } from "./tensor_types.ts";

const Q = "blk.0.attn_q.weight"; // Q8_0, 32 x 32
const K = "blk.0.attn_k.weight"; // Q8_0, 32 x 16, next after Q
const NORM = "output_norm.weight"; // F32, length 32
const FIRST = "token_embd.weight";
const LAST = "blk.0.ffn_down.weight"; // F16, 64 x 32

const SHAPES: BadFile[] = [
  ...[0, 5, 64, 0x80000000, 0xffffffff].map((rank): BadFile => ({
    what: `a tensor of ${rank} dimensions`,
    code: "GGUF_SHAPE",
    at: `${Q}/rank`,
    field: tensor(Q),
    spoil: (file) => file.u32(`${Q}/rank`, rank),
  })),
  ...[0n, -1n, -32n, 2n ** 63n, 2n ** 53n].flatMap((size) =>
    [0, 1].map((i): BadFile => ({
      what: `dimension ${i} of ${size}`,
      code: "GGUF_SHAPE",
      at: `${Q}/dim${i}`,
      field: tensor(Q),
      spoil: (file) => file.u64(`${Q}/dim${i}`, size),
    }))
  ),
  ...[2n ** 32n, 2n ** 59n, 2n ** 27n].map((size): BadFile => ({
    what: `dimensions of 2^32 x ${size}, whose product wraps`,
    code: "GGUF_SHAPE",
    at: `${Q}/dim1`,
    field: tensor(Q),
    spoil: (file) => file.u64(`${Q}/dim0`, 2n ** 32n).u64(`${Q}/dim1`, size),
  })),
  {
    what: "four dimensions of 65,536, whose product wraps to 0",
    code: "GGUF_SHAPE",
    at: "t/dim3",
    field: tensor("t"),
    base: () => new GgufBuilder().tensor("t", "F32", [1, 1, 1, 1]),
    spoil: (file) =>
      file.u64("t/dim0", 65_536).u64("t/dim1", 65_536).u64("t/dim2", 65_536).u64("t/dim3", 65_536),
  },
  {
    what: "fewer than 2^53 elements in more than 2^53 bytes",
    code: "GGUF_SHAPE",
    at: `${NORM}/dim0`,
    field: tensor(NORM),
    spoil: (file) => file.u64(`${NORM}/dim0`, 2n ** 52n),
  },
  ...[1, 31, 33, 48].map((columns): BadFile => ({
    what: `rows of ${columns} in blocks of 32`,
    code: "GGUF_SHAPE",
    at: `${Q}/dim0`,
    field: tensor(Q),
    spoil: (file) => file.u64(`${Q}/dim0`, columns),
  })),
  // Blocks of 256: ids 10 to 14 are Q2_K to Q6_K, 23 is IQ4_XS.
  ...[10, 11, 12, 13, 14, 23].map((type): BadFile => ({
    what: `rows of 32 in a type of id ${type}, whose blocks have 256`,
    code: "GGUF_SHAPE",
    at: `${Q}/dim0`,
    field: tensor(Q),
    spoil: (file) => file.u32(`${Q}/type`, type),
  })),
];

/** Ids up to 42 of types without kernels. 64-bit integers are not included: the plan refuses them, not the reader. */
const UNSUPPORTED = Array.from({ length: 43 }, (_, id) => id)
  .filter((id) => layoutOfId(id) === undefined && id !== INTEGERS.id);
const UNKNOWN = [43, 99, 255, 0x7fffffff, 0x80000000, 0xffffffff];
const TYPES: BadFile[] = [...UNSUPPORTED, ...UNKNOWN].map((type) => ({
  what: `tensor type ${type}`,
  code: "GGUF_TENSOR_TYPE",
  at: `${Q}/type`,
  field: tensor(Q),
  spoil: (file) => file.u32(`${Q}/type`, type),
}));

const OFFSETS: BadFile[] = [
  ...[1n, 16n, 31n, 33n, -1n, 2n ** 63n + 1n, 2n ** 53n + 32n, -32n].map((offset): BadFile => ({
    what: `tensor data at the unaligned or unrepresentable offset ${offset}`,
    code: "GGUF_OFFSET",
    at: `${Q}/offset`,
    field: tensor(Q),
    spoil: (file) => file.u64(`${Q}/offset`, offset),
  })),
  ...[2n ** 20n, 2n ** 32n, 2n ** 40n, 2n ** 52n].map((offset): BadFile => ({
    what: `tensor data at ${offset}, past the end of the file`,
    code: "GGUF_OFFSET",
    at: `${LAST}/offset`,
    field: tensor(LAST),
    spoil: (file) => file.u64(`${LAST}/offset`, offset),
  })),
  {
    what: "two tensors at the same offset",
    code: "GGUF_OFFSET",
    at: `${NORM}/offset`,
    field: tensor(NORM),
    spoil: (file) => file.u64(`${NORM}/offset`, 0),
  },
  {
    what: "a tensor that begins inside the one before",
    code: "GGUF_OFFSET",
    at: `${NORM}/offset`,
    field: tensor(NORM),
    spoil: (file) => file.u64(`${NORM}/offset`, 32),
  },
  {
    what: "a tensor that is longer than the space up to the next",
    code: "GGUF_OFFSET",
    at: `${NORM}/offset`,
    field: tensor(NORM),
    spoil: (file) => file.u64(`${FIRST}/dim1`, 9),
  },
  {
    what: "a tensor inside one that stands after it in the table",
    code: "GGUF_OFFSET",
    at: `${K}/offset`,
    field: tensor(K),
    spoil: (file) => file.u64(`${Q}/offset`, 0).u64(`${K}/offset`, 32).u64(`${FIRST}/offset`, 2 ** 13),
  },
  {
    what: "offsets aligned to 32 in a file of alignment 64",
    code: "GGUF_OFFSET",
    at: `${NORM}/offset`,
    field: tensor(NORM),
    base: () => smallModel().set("general.alignment", "UINT32", 64),
    spoil: (file) => file.u64(`${NORM}/offset`, 288),
  },
];

const TRUNCATED: BadFile[] = [
  {
    what: "a file without its last tensor's last byte",
    code: "GGUF_TRUNCATED",
    at: `${LAST}/offset`,
    field: tensor(LAST),
    spoil: (file) => file.bytes.subarray(0, -1),
  },
  {
    what: "a file that ends where the data would begin",
    code: "GGUF_TRUNCATED",
    at: `${FIRST}/offset`,
    field: tensor(FIRST),
    spoil: (file) => file.cut("data"),
  },
  {
    what: "a file that ends in the padding before the data",
    code: "GGUF_TRUNCATED",
    at: `${FIRST}/offset`,
    field: tensor(FIRST),
    spoil: (file) => file.cut("padding"),
  },
  {
    what: "a file that ends between two tensors",
    code: "GGUF_TRUNCATED",
    at: `${K}/offset`,
    field: tensor(K),
    spoil: (file) => file.cut(`${K}/data`),
  },
  {
    what: "a last tensor of more rows than the file has",
    code: "GGUF_TRUNCATED",
    at: `${LAST}/offset`,
    field: tensor(LAST),
    spoil: (file) => file.u64(`${LAST}/dim1`, 33),
  },
  {
    what: "a file that has shrunk while it was read",
    code: "GGUF_TRUNCATED",
    at: "tokenizer.ggml.tokens/length",
    field: "key 15",
    spoil: (file) => file.cut("tokenizer.ggml.tokens/length", 4),
    fileSize: 2 ** 20,
  },
];

testBadFiles(parseGguf, [SHAPES, TYPES, OFFSETS, TRUNCATED].flat());
