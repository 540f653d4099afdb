/** A GGUF writer for tests: it writes valid files, and files with any field corrupted. */

import { VALUE_TYPES, type ValueType } from "./key_values.ts";
import { byteLengthOf, INTEGERS } from "./tensor_types.ts";
import { FORMATS } from "./formats.ts";
import type { TensorType } from "./types.ts";

type Scalar = number | bigint | boolean | string;

/** Little-endian bytes with the offsets of their fields. */
class FieldWriter {
  readonly marks = new Map<string, number>();
  length = 0;
  #buffer = new Uint8Array(4096);
  #view = new DataView(this.#buffer.buffer);
  readonly #encoder = new TextEncoder();

  mark(name: string): void {
    this.marks.set(name, this.length);
  }

  bytes(bytes: Uint8Array): void {
    const at = this.#grow(bytes.length);
    this.#buffer.set(bytes, at);
  }

  /** Appends space for a scalar. Returns the view and the offset of that space. */
  scalar(bytes: number): { view: DataView; at: number } {
    const at = this.#grow(bytes);
    return { view: this.#view, at };
  }

  u32(value: number): void {
    const { view, at } = this.scalar(4);
    view.setUint32(at, value, true);
  }

  u64(value: number): void {
    const { view, at } = this.scalar(8);
    view.setUint32(at, value % 2 ** 32, true);
    view.setUint32(at + 4, value / 2 ** 32, true);
  }

  string(text: string): void {
    const bytes = this.#encoder.encode(text);
    this.u64(bytes.length);
    this.bytes(bytes);
  }

  pad(alignment: number): void {
    this.#grow(-this.length & (alignment - 1));
  }

  result(): Uint8Array<ArrayBuffer> {
    return this.length === this.#buffer.length ? this.#buffer : this.#buffer.slice(0, this.length);
  }

  /** Allocates memory for the remaining bytes. */
  reserve(bytes: number): void {
    this.#resize(this.length + bytes);
  }

  /** Appends `count` zero bytes and returns their offset. */
  #grow(count: number): number {
    const at = this.length;
    const end = at + count;
    if (end > this.#buffer.length) this.#resize(Math.max(end, 2 * this.#buffer.length));
    this.length = end;
    return at;
  }

  #resize(bytes: number): void {
    const resized = new Uint8Array(bytes);
    resized.set(this.#buffer.subarray(0, this.length));
    this.#buffer = resized;
    this.#view = new DataView(resized.buffer);
  }
}

interface KeyValue {
  readonly key: string;
  readonly type: number;
  readonly write: (out: FieldWriter) => void;
}

interface Tensor {
  readonly name: string;
  readonly type: number;
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

/**
 * Collects key-values and tensors, and writes them in order.
 *
 * @example
 * ```ts
 * const file = new GgufBuilder().set("general.architecture", "STRING", "llama").build();
 * file.u32("version", 4); // corrupts it
 * parseGguf(file.bytes); // throws GGUF_VERSION
 * ```
 */
export class GgufBuilder {
  version = 3;
  /** Alignment of the tensor data in bytes. Set the key `general.alignment` too. */
  alignment = 32;
  #keyValues: KeyValue[] = [];
  #tensors: Tensor[] = [];

  /** Sets a scalar or string. An existing key of that name keeps its position. */
  set(key: string, type: Exclude<ValueType, "ARRAY">, value: Scalar): this {
    return this.raw(key, VALUE_TYPES.indexOf(type), (out) => writeScalar(out, type, value));
  }

  /** Sets an array. `values` may be the typed array of the element type. */
  array(key: string, type: Exclude<ValueType, "ARRAY">, values: ArrayLike<Scalar>): this {
    return this.raw(key, VALUE_TYPES.indexOf("ARRAY"), (out) => {
      out.mark(`${key}/elementType`);
      out.u32(VALUE_TYPES.indexOf(type));
      out.mark(`${key}/count`);
      out.u64(values.length);
      out.mark(`${key}/elements`);
      if (ArrayBuffer.isView(values)) return out.bytes(bytesOf(values));
      for (let i = 0; i < values.length; i++) writeScalar(out, type, values[i]);
    });
  }

  /** Sets a key to a value of any type id and any bytes. */
  raw(key: string, type: number, value: Uint8Array | ((out: FieldWriter) => void)): this {
    const write = typeof value === "function" ? value : (out: FieldWriter) => out.bytes(value);
    const known = this.#keyValues.findIndex((entry) => entry.key === key);
    this.#keyValues.splice(known < 0 ? this.#keyValues.length : known, 1, { key, type, write });
    return this;
  }

  delete(key: string): this {
    this.#keyValues = this.#keyValues.filter((entry) => entry.key !== key);
    return this;
  }

  /**
   * Adds a tensor. `shape` is in ggml order; `data` defaults to zeros. An existing tensor of that name keeps its
   * position.
   */
  tensor(name: string, type: TensorType, shape: readonly number[], data?: ArrayBufferView): this {
    const bytes = data ? bytesOf(data) : new Uint8Array(byteLengthOf(type, shape.reduce((a, b) => a * b, 1)));
    const known = this.#tensors.findIndex((tensor) => tensor.name === name);
    const tensor = { name, type: FORMATS[type].id, shape, data: bytes };
    this.#tensors.splice(known < 0 ? this.#tensors.length : known, 1, tensor);
    return this;
  }

  /** Adds a tensor of 64-bit integers. */
  integers(name: string, values: readonly number[]): this {
    const data = bytesOf(BigInt64Array.from(values, BigInt));
    this.#tensors.push({ name, type: INTEGERS.id, shape: [values.length], data });
    return this;
  }

  deleteTensor(name: string): this {
    this.#tensors = this.#tensors.filter((tensor) => tensor.name !== name);
    return this;
  }

  build(): BuiltGguf {
    const out = new FieldWriter();
    out.mark("magic");
    out.bytes(new TextEncoder().encode("GGUF"));
    out.mark("version");
    out.u32(this.version);
    out.mark("tensorCount");
    out.u64(this.#tensors.length);
    out.mark("keyValueCount");
    out.u64(this.#keyValues.length);
    for (const keyValue of this.#keyValues) writeKeyValue(out, keyValue);
    out.mark("tensors");
    this.#writeTensors(out);
    return new BuiltGguf(out.result(), out.marks);
  }

  #writeTensors(out: FieldWriter): void {
    let offset = 0;
    for (const tensor of this.#tensors) {
      writeTensorEntry(out, tensor, offset);
      offset += Math.ceil(tensor.data.length / this.alignment) * this.alignment;
    }
    out.mark("padding");
    out.pad(this.alignment);
    out.reserve(offset);
    out.mark("data");
    for (const { name, data } of this.#tensors) {
      out.mark(`${name}/data`);
      out.bytes(data);
      out.pad(this.alignment);
    }
  }
}

/**
 * A test file that was written. Its fields are named `magic`, `version`, `tensorCount`, `keyValueCount`, `KEY/length`,
 * `KEY/name`, `KEY/type`, `KEY/value` (for arrays also `KEY/elementType`, `KEY/count`, `KEY/elements`), `tensors`,
 * `NAME/length`, `NAME/name`, `NAME/rank`, `NAME/dim0` to `dim3`, `NAME/type`, `NAME/offset`, `padding`, `data` and
 * `NAME/data`.
 */
export class BuiltGguf {
  readonly #view: DataView;

  constructor(readonly bytes: Uint8Array<ArrayBuffer>, readonly marks: ReadonlyMap<string, number>) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Returns the byte offset of a field. */
  at(field: string): number {
    const byte = this.marks.get(field);
    if (byte === undefined) throw new Error(`Cannot find field ${field}: the file has no such field`);
    return byte;
  }

  u8(field: string, value: number): this {
    this.#view.setUint8(this.at(field), value);
    return this;
  }

  u32(field: string, value: number): this {
    this.#view.setUint32(this.at(field), value, true);
    return this;
  }

  u64(field: string, value: number | bigint): this {
    this.#view.setBigUint64(this.at(field), BigInt.asUintN(64, BigInt(value)), true);
    return this;
  }

  f32(field: string, value: number): this {
    this.#view.setFloat32(this.at(field), value, true);
    return this;
  }

  /** Returns the bytes up to a field, or `more` bytes further. */
  cut(field: string, more = 0): Uint8Array {
    return this.bytes.subarray(0, this.at(field) + more);
  }
}

/** Returns a valid llama file of one layer, 32 wide, with a byte-level BPE of eight tokens. */
export function smallModel(): GgufBuilder {
  const builder = new GgufBuilder()
    .set("general.architecture", "STRING", "llama")
    .set("general.name", "STRING", "small")
    .set("llama.block_count", "UINT32", 1)
    .set("llama.context_length", "UINT32", 128)
    .set("llama.embedding_length", "UINT32", 32)
    .set("llama.feed_forward_length", "UINT32", 64)
    .set("llama.attention.head_count", "UINT32", 4)
    .set("llama.attention.head_count_kv", "UINT32", 2)
    .set("llama.attention.key_length", "UINT32", 8)
    .set("llama.attention.value_length", "UINT32", 8)
    .set("llama.rope.dimension_count", "UINT32", 8)
    .set("llama.rope.freq_base", "FLOAT32", 10_000)
    .set("llama.attention.layer_norm_rms_epsilon", "FLOAT32", 1e-5)
    .set("tokenizer.ggml.model", "STRING", "gpt2")
    .set("tokenizer.ggml.pre", "STRING", "default")
    .array("tokenizer.ggml.tokens", "STRING", ["t", "h", "e", "th", "the", "é", "<s>", "</s>"])
    .array("tokenizer.ggml.token_type", "INT32", [1, 1, 1, 1, 1, 1, 3, 3])
    .array("tokenizer.ggml.scores", "FLOAT32", [0, 0, 0, 0, 0, 0, 0, 0])
    .array("tokenizer.ggml.merges", "STRING", ["t h", "th e"])
    .set("tokenizer.ggml.bos_token_id", "UINT32", 6)
    .set("tokenizer.ggml.eos_token_id", "UINT32", 7)
    .set("tokenizer.ggml.add_bos_token", "BOOL", false)
    .tensor("token_embd.weight", "Q8_0", [32, 8])
    .tensor("output_norm.weight", "F32", [32]);
  const matrices = { attn_q: [32, 32], attn_k: [32, 16], attn_v: [32, 16], attn_output: [32, 32] };
  for (const [name, shape] of Object.entries(matrices)) builder.tensor(`blk.0.${name}.weight`, "Q8_0", shape);
  return builder
    .tensor("blk.0.attn_norm.weight", "F32", [32])
    .tensor("blk.0.ffn_norm.weight", "F32", [32])
    .tensor("blk.0.ffn_gate.weight", "Q4_0", [32, 64])
    .tensor("blk.0.ffn_up.weight", "Q4_0", [32, 64])
    .tensor("blk.0.ffn_down.weight", "F16", [64, 32]);
}

function bytesOf(view: ArrayBufferView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

function writeKeyValue(out: FieldWriter, { key, type, write }: KeyValue): void {
  writeName(out, key);
  out.mark(`${key}/type`);
  out.u32(type);
  out.mark(`${key}/value`);
  write(out);
}

function writeTensorEntry(out: FieldWriter, { name, type, shape }: Tensor, offset: number): void {
  writeName(out, name);
  out.mark(`${name}/rank`);
  out.u32(shape.length);
  for (const [i, size] of shape.entries()) {
    out.mark(`${name}/dim${i}`);
    out.u64(size);
  }
  out.mark(`${name}/type`);
  out.u32(type);
  out.mark(`${name}/offset`);
  out.u64(offset);
}

function writeName(out: FieldWriter, name: string): void {
  out.mark(`${name}/length`);
  out.marks.set(`${name}/name`, out.length + 8);
  out.string(name);
}

function writeScalar(out: FieldWriter, type: Exclude<ValueType, "ARRAY">, value: Scalar): void {
  if (type === "STRING") return out.string(String(value));
  const [bytes, write] = SCALARS[type];
  const { view, at } = out.scalar(bytes);
  write(view, at, value);
}

type ScalarWriter = (view: DataView, at: number, value: Scalar) => void;

const SCALARS: Record<Exclude<ValueType, "ARRAY" | "STRING">, [bytes: number, write: ScalarWriter]> = {
  UINT8: [1, (view, at, value) => view.setUint8(at, Number(value))],
  INT8: [1, (view, at, value) => view.setInt8(at, Number(value))],
  UINT16: [2, (view, at, value) => view.setUint16(at, Number(value), true)],
  INT16: [2, (view, at, value) => view.setInt16(at, Number(value), true)],
  UINT32: [4, (view, at, value) => view.setUint32(at, Number(value), true)],
  INT32: [4, (view, at, value) => view.setInt32(at, Number(value), true)],
  FLOAT32: [4, (view, at, value) => view.setFloat32(at, Number(value), true)],
  BOOL: [1, (view, at, value) => view.setUint8(at, Number(value))],
  UINT64: [8, (view, at, value) => view.setBigUint64(at, BigInt(value), true)],
  INT64: [8, (view, at, value) => view.setBigInt64(at, BigInt(value), true)],
  FLOAT64: [8, (view, at, value) => view.setFloat64(at, Number(value), true)],
};
