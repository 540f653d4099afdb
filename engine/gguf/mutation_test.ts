import { assert } from "@std/assert";
import { GgufError } from "./errors.ts";
import { readHparams } from "./hparams/hparams.ts";
import { parseGguf } from "./reader.ts";
import { type BuiltGguf, GgufBuilder, smallModel } from "./testing.ts";
import { readVocabulary } from "./vocabulary.ts";

/** Runs the checks of a model load. Returns the GgufError, if any; other errors fail the test. */
function load(bytes: Uint8Array, fileSize = bytes.length): GgufError | undefined {
  try {
    const file = parseGguf(bytes, fileSize);
    readVocabulary(file.metadata);
    readHparams(file);
    return undefined;
  } catch (error) {
    if (error instanceof GgufError) return error;
    throw error;
  }
}

/** Returns a seeded generator of integers below `bound`. Source: Steele and Vigna's SplitMix, 32 bits. */
function randomIntegers(seed: number): (bound: number) => number {
  return (bound) => {
    seed = seed + 0x9e3779b9 | 0;
    let mixed = seed ^ seed >>> 16;
    mixed = Math.imul(mixed, 0x21f0aaad);
    mixed ^= mixed >>> 15;
    mixed = Math.imul(mixed, 0x735a2d97);
    mixed ^= mixed >>> 15;
    return Math.floor((mixed >>> 0) / 2 ** 32 * bound);
  };
}

const EDGES = [
  0n,
  1n,
  2n,
  12n,
  13n,
  31n,
  33n,
  255n,
  2n ** 16n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 53n,
  2n ** 63n,
  2n ** 64n - 1n,
];

/** Corrupts the file's bytes once: in place, or by returning new bytes. */
type Mutation = (bytes: Uint8Array, random: (bound: number) => number) => Uint8Array | void;

const MUTATIONS: Mutation[] = [
  function flipBit(bytes, random) {
    bytes[random(bytes.length)] ^= 1 << random(8);
  },
  function setByte(bytes, random) {
    bytes[random(bytes.length)] = random(256);
  },
  function setInteger(bytes, random) {
    const view = new DataView(bytes.buffer);
    const edge = EDGES[random(EDGES.length)];
    const at = random(bytes.length - 8);
    if (random(2) === 0) view.setUint32(at, Number(edge & 0xffffffffn), true);
    else view.setBigUint64(at, edge, true);
  },
  function remove(bytes, random) {
    const at = random(bytes.length);
    return splice(bytes, at, at + 1 + random(16));
  },
  function repeat(bytes, random) {
    const at = random(bytes.length);
    return splice(bytes, at + 1 + random(64), at);
  },
  function move(bytes, random) {
    bytes.copyWithin(random(bytes.length), random(bytes.length), random(bytes.length));
  },
  function cut(bytes, random) {
    return bytes.slice(0, random(bytes.length));
  },
];

/** Returns the bytes before `until`, followed by those from `from` on. */
function splice(bytes: Uint8Array, until: number, from: number): Uint8Array {
  const [head, tail] = [bytes.subarray(0, until), bytes.subarray(from)];
  const spliced = new Uint8Array(head.length + tail.length);
  spliced.set(head);
  spliced.set(tail, head.length);
  return spliced;
}

Deno.test("reader: each of 20,000 mutated headers is read, or refused with GgufError, within a second", () => {
  const base = smallModel().set("general.alignment", "UINT32", 32).array("longs", "INT64", [1n, -1n])
    .array("flags", "BOOL", [true]).build();
  const header = base.cut("data");
  const dataBytes = base.bytes.length - header.length;
  const random = randomIntegers(20_240_817);
  const outcomes = new Map<string, number>();
  let slowest = 0;
  for (let i = 0; i < 20_000; i++) {
    let bytes: Uint8Array = header.slice();
    for (let n = random(3); n >= 0 && bytes.length > 16; n--) {
      bytes = MUTATIONS[random(MUTATIONS.length)](bytes, random) ?? bytes;
    }
    // The data's content does not matter, only its length. Every tenth file claims another size, up to 2^44.
    const fileSize = bytes.length + (random(10) === 0 ? 2 ** random(44) : dataBytes);
    const start = performance.now();
    const outcome = load(bytes, fileSize)?.code ?? "read";
    slowest = Math.max(slowest, performance.now() - start);
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
  }
  assert(slowest < 1000, `the slowest took ${slowest} ms`);
  // All codes except GGUF_DATA (about weights) and GGUF_SPLIT (several files) occur, and "read".
  assert(outcomes.size === 16, [...outcomes].join(" "));
});

/** Returns the lengths one byte before, at and after each field boundary. */
function cuts(file: BuiltGguf): number[] {
  const edges = new Set([...file.marks.values()].flatMap((byte) => [byte - 1, byte, byte + 1]));
  return [...edges].filter((length) => length >= 0 && length < file.bytes.length);
}

Deno.test("reader: refuses a file cut at, or one byte before or after, any field boundary", () => {
  const file = smallModel().build();
  for (const length of cuts(file)) {
    const error = load(file.bytes.subarray(0, length));
    // After the end of the last tensor there is only padding.
    const whole = length >= file.at("blk.0.ffn_down.weight/data") + 64 * 32 * 2;
    assert(whole || error, `a file cut at ${length} was read`);
    assert(whole || error!.byte! <= length, `cut at ${length}: ${error?.message}`);
  }
});

Deno.test("reader: refuses a file cut at any header byte, even if it shrank after its size was read", () => {
  const file = smallModel().build();
  for (let length = 0; length < file.at("data"); length++) {
    assert(load(file.bytes.subarray(0, length)), `a file cut at ${length} was read`);
    const shrunk = load(file.bytes.subarray(0, length), file.bytes.length);
    // The padding before the data is never read.
    if (length < file.at("padding")) {
      assert(shrunk?.code === "GGUF_TRUNCATED", `shrunk to ${length}: ${shrunk}`);
    }
  }
});

/**
 * For each value type, bytes per element and number of elements, at the limit for elements that become JavaScript
 * values.
 */
const LARGE = {
  STRING: [8, 8, 2_097_152],
  BOOL: [7, 1, 2_097_152],
  UINT64: [10, 8, 2_097_152],
  UINT8: [0, 1, 60_000_000],
};

for (const [type, [id, bytes, count]] of Object.entries(LARGE)) {
  Deno.test(`reader: reads ${count} zeros of ${type} in seconds`, () => {
    const value = new Uint8Array(12 + count * bytes);
    value.set(new Uint8Array(Uint32Array.of(id, count, 0).buffer));
    const built = new GgufBuilder().raw("zeros", 9, value).build();
    const start = performance.now();
    assert(parseGguf(built.bytes).metadata.has("zeros"));
    const ms = performance.now() - start;
    assert(ms < 5000, `it took ${ms} ms`); // 0.01 to 0.2 s on an idle machine
  });
}
