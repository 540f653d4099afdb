/*
 * Thrift's compact protocol, which Parquet uses for metadata, without the meaning of fields. Unknown fields are written
 * back unchanged.
 */

const TRUE = 1,
  FALSE = 2,
  BYTE = 3,
  I16 = 4,
  I32 = 5,
  I64 = 6,
  DOUBLE = 7,
  BINARY = 8,
  LIST = 9,
  SET = 10,
  STRUCT = 12;
const MAX_DEPTH = 32;
/** Maximum length of a list that its first byte can state. */
const SHORT_LIST = 15;

/** A decoded value. Integers of any size are bigint; doubles and texts are bytes. */
export type ThriftValue = boolean | bigint | Uint8Array | ThriftList | ThriftStruct;

export interface ThriftList {
  /** Type of the list's items. */
  readonly of: number;
  readonly items: ThriftValue[];
}

interface Field {
  readonly id: number;
  readonly type: number;
  value: ThriftValue;
}

/** Fields in ascending order of their ids. */
export class ThriftStruct {
  constructor(private readonly fields: Field[]) {}

  private find(id: number): Field | undefined {
    return this.fields.find((field) => field.id === id);
  }

  get(id: number): ThriftValue | undefined {
    return this.find(id)?.value;
  }

  integer(id: number): bigint | undefined {
    const value = this.get(id);
    return typeof value === "bigint" ? value : undefined;
  }

  struct(id: number): ThriftStruct | undefined {
    const value = this.get(id);
    return value instanceof ThriftStruct ? value : undefined;
  }

  /** Returns the structs in a list field; none if it is missing. */
  structs(id: number): ThriftStruct[] {
    const items = (this.get(id) as ThriftList | undefined)?.items ?? [];
    return items.filter((item) => item instanceof ThriftStruct);
  }

  /** Replaces the value of an existing field. */
  replace(id: number, value: ThriftValue): void {
    const field = this.find(id);
    if (field !== undefined) field.value = value;
  }

  /** Replaces the items of a list; removes an empty list. */
  replaceItems(id: number, items: ThriftValue[]): void {
    const list = this.get(id) as ThriftList | undefined;
    if (items.length === 0) this.remove(id);
    else if (list !== undefined) this.replace(id, { of: list.of, items });
  }

  remove(id: number): void {
    const at = this.fields.findIndex((field) => field.id === id);
    if (at >= 0) this.fields.splice(at, 1);
  }

  [Symbol.iterator](): Iterator<Field> {
    return this.fields[Symbol.iterator]();
  }
}

/** Decodes a struct. Throws Error for invalid bytes. */
export function decodeStruct(bytes: Uint8Array): ThriftStruct {
  return new Decoder(bytes).struct(0);
}

/** Returns the struct at `at` and the offset of its end. */
export function decodeStructAt(bytes: Uint8Array, at: number): { struct: ThriftStruct; end: number } {
  const decoder = new Decoder(bytes.subarray(at));
  return { struct: decoder.struct(0), end: at + decoder.at };
}

export function encodeStruct(struct: ThriftStruct): Uint8Array {
  const encoder = new Encoder();
  encoder.struct(struct);
  return encoder.bytes();
}

class Decoder {
  at = 0;

  constructor(private readonly from: Uint8Array) {}

  struct(depth: number): ThriftStruct {
    const fields: Field[] = [];
    for (let last = 0;;) {
      const head = this.byte();
      if (head === 0) return new ThriftStruct(fields);
      const delta = head >> 4;
      last = delta === 0 ? Number(this.zigzag()) : last + delta;
      const type = head & 15;
      const value = type === TRUE || type === FALSE ? type === TRUE : this.value(type, depth + 1);
      fields.push({ id: last, type, value });
    }
  }

  private value(type: number, depth: number): ThriftValue {
    if (depth > MAX_DEPTH) throw new Error("its description is nested too deep");
    switch (type) {
      case TRUE:
      case FALSE:
        return this.byte() === TRUE;
      case BYTE:
        return BigInt(this.byte());
      case I16:
      case I32:
      case I64:
        return this.zigzag();
      case DOUBLE:
        return this.take(8);
      case BINARY:
        return this.take(Number(this.varint()));
      case LIST:
      case SET:
        return this.list(depth);
      case STRUCT:
        return this.struct(depth);
    }
    throw new Error(`its description has a field of the unknown type ${type}`);
  }

  private list(depth: number): ThriftList {
    const head = this.byte();
    const length = head >> 4 === SHORT_LIST ? Number(this.varint()) : head >> 4;
    if (length > this.from.length - this.at) throw new Error("its description ends too early");
    const of = head & 15;
    return { of, items: Array.from({ length }, () => this.value(of, depth + 1)) };
  }

  private byte(): number {
    return this.take(1)[0];
  }

  private take(length: number): Uint8Array {
    if (!(length <= this.from.length - this.at)) throw new Error("its description ends too early");
    return this.from.subarray(this.at, this.at += length);
  }

  private varint(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
    throw new Error("its description has an integer that is too long");
  }

  private zigzag(): bigint {
    const value = this.varint();
    return value >> 1n ^ -(value & 1n);
  }
}

class Encoder {
  private readonly out: number[] = [];

  bytes(): Uint8Array {
    return Uint8Array.from(this.out);
  }

  struct(struct: ThriftStruct): void {
    let last = 0;
    for (const { id, type, value } of struct) {
      const isFlag = type === TRUE || type === FALSE;
      const kind = isFlag ? (value ? TRUE : FALSE) : type;
      const delta = id - last;
      if (delta > 0 && delta < 16) this.out.push(delta << 4 | kind);
      else {
        this.out.push(kind);
        this.zigzag(BigInt(id));
      }
      last = id;
      if (!isFlag) this.value(type, value);
    }
    this.out.push(0);
  }

  private value(type: number, value: ThriftValue): void {
    if (typeof value === "boolean") this.out.push(value ? TRUE : FALSE);
    else if (type === BYTE) this.out.push(Number(value) & 255);
    else if (typeof value === "bigint") this.zigzag(value);
    else if (value instanceof Uint8Array) {
      if (type === BINARY) this.varint(BigInt(value.length));
      for (const byte of value) this.out.push(byte);
    } else if (value instanceof ThriftStruct) this.struct(value);
    else {
      const { of, items } = value;
      this.out.push(Math.min(items.length, SHORT_LIST) << 4 | of);
      if (items.length >= SHORT_LIST) this.varint(BigInt(items.length));
      for (const item of items) this.value(of, item);
    }
  }

  private varint(value: bigint): void {
    for (; value >= 128n; value >>= 7n) this.out.push(Number(value & 127n) | 128);
    this.out.push(Number(value));
  }

  private zigzag(value: bigint): void {
    this.varint(BigInt.asUintN(64, value << 1n ^ value >> 63n));
  }
}
