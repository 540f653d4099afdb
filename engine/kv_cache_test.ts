import { assert, assertEquals, assertThrows } from "@std/assert";
import { KV_BLOCK_TOKENS } from "./backend/backend.ts";
import { KvCache } from "./kv_cache.ts";
import type { Sequence } from "./sequence.ts";
import { promptOf } from "./testing.ts";

/** As much of a sequence as the cache looks at. */
function sequenceOf(tokens: number[], maxLength = tokens.length + 1, salt = ""): Sequence {
  const state = { cached: 0, blocks: new Int32Array(0), blockCount: 0, indexed: 0, promptLogprobs: false };
  return {
    ...state,
    tokens: Int32Array.from(tokens),
    length: tokens.length,
    maxLength,
    salt,
    hashes: [],
  } as unknown as
    & Sequence
    & object;
}

/** Admits a sequence and computes all its tokens. */
function run(cache: KvCache, sequence: Sequence): Sequence {
  assert(cache.admit(sequence));
  return compute(cache, sequence, sequence.length);
}

function compute(cache: KvCache, sequence: Sequence, tokens: number): Sequence {
  cache.extend(sequence, tokens);
  sequence.cached = tokens;
  cache.share(sequence);
  return sequence;
}

function held(sequence: Sequence): number[] {
  return [...sequence.blocks.subarray(0, sequence.blockCount)];
}

Deno.test("memory is reserved when a sequence is admitted, and given back whole", () => {
  const cache = new KvCache(10);
  const first = sequenceOf(promptOf(20), 200); // 7 blocks
  assert(cache.admit(first));
  assertEquals([cache.used, cache.total, first.blockCount], [7, 10, 0]);
  assert(!cache.admit(sequenceOf(promptOf(20, 1), 97)));
  const second = sequenceOf(promptOf(20, 1), 96);
  assert(cache.admit(second));
  compute(cache, first, 150);
  assertEquals([cache.used, first.blockCount], [10, 5]);
  cache.release(first);
  cache.release(second);
  assertEquals(cache.used, 0);
});

Deno.test("full blocks are found again by later and by simultaneous sequences", () => {
  const cache = new KvCache(20);
  const first = run(cache, sequenceOf(promptOf(100)));
  const second = run(cache, sequenceOf([...promptOf(70), 1, 2, 3]));
  assertEquals(held(second).slice(0, 2), held(first).slice(0, 2));
  assert(held(second)[2] !== held(first)[2]);
  assertEquals(cache.used, 4 + 1);
  cache.release(first);
  cache.release(second);
  const third = sequenceOf(promptOf(100));
  assert(cache.admit(third));
  assertEquals(third.cached, 96);
});

Deno.test("the last token is never taken from the cache", () => {
  const cache = new KvCache(20);
  cache.release(run(cache, sequenceOf(promptOf(64))));
  for (const [length, cached] of [[32, 0], [33, 32], [64, 32], [65, 64]]) {
    const sequence = sequenceOf(promptOf(length));
    assert(cache.admit(sequence));
    assertEquals(sequence.cached, cached, `${length} tokens`);
    cache.release(sequence);
  }
});

Deno.test("salts keep prefixes apart", () => {
  const cache = new KvCache(20);
  cache.release(run(cache, sequenceOf(promptOf(64), 65, "alice")));
  for (const [salt, cached] of [["bob", 0], ["", 0], ["alice", 32]] as const) {
    const sequence = sequenceOf(promptOf(64), 65, salt);
    assert(cache.admit(sequence));
    assertEquals(sequence.cached, cached, salt);
    cache.release(sequence);
  }
});

Deno.test("equal hashes of different tokens or salts share nothing and break nothing", () => {
  const cache = new KvCache(20);
  const collide = (sequence: Sequence) => {
    sequence.hashes.push(1, 2);
    return sequence;
  };
  const first = run(cache, collide(sequenceOf(promptOf(70))));
  for (const other of [sequenceOf(promptOf(70, 1)), sequenceOf(promptOf(70), 71, "salt")]) {
    run(cache, collide(other));
    assertEquals(other.indexed, 0);
    assertEquals(new Set([...held(first), ...held(other)]).size, 6);
    cache.release(other);
  }
  // The same second block after another first one is another block.
  const late = sequenceOf([...promptOf(32, 5), ...promptOf(70).slice(32)]);
  late.hashes.push(7, 2);
  assertEquals(run(cache, late).indexed, 1);
  assert(held(late)[1] !== held(first)[1]);
});

Deno.test("two that computed the same block at once end up with one of them", () => {
  const cache = new KvCache(20);
  const [first, second] = [sequenceOf(promptOf(40)), sequenceOf(promptOf(40))];
  assert(cache.admit(first) && cache.admit(second));
  compute(cache, first, 40);
  assertEquals(cache.used, 4);
  compute(cache, second, 40);
  assertEquals(held(second)[0], held(first)[0]);
  assertEquals(cache.used, 3);
  cache.release(first);
  cache.release(second);
  assertEquals(cache.used, 0);
});

Deno.test("the least recently used blocks go first, and the end of a chain before its beginning", () => {
  const cache = new KvCache(6);
  cache.release(run(cache, sequenceOf(promptOf(96, 1)))); // 3 full blocks, 1 without content
  cache.release(run(cache, sequenceOf(promptOf(64, 2)))); // 2 full blocks
  cache.release(run(cache, sequenceOf(promptOf(40, 3), 64))); // 1 free, 1 taken from the end of the first chain
  const longest = (seed: number) => {
    const sequence = sequenceOf(promptOf(100, seed), 101);
    assert(cache.admit(sequence));
    const { cached } = sequence;
    cache.release(sequence);
    return cached;
  };
  assertEquals([1, 2, 3].map(longest), [64, 64, 32]);
});

Deno.test("a waiting sequence knows whether what it needs next is being computed", () => {
  const cache = new KvCache(20);
  const running = sequenceOf(promptOf(100));
  assert(cache.admit(running));
  assert(cache.isComputing(running, sequenceOf(promptOf(100))));
  assert(cache.isComputing(running, sequenceOf(promptOf(33))));
  assert(!cache.isComputing(running, sequenceOf(promptOf(32))), "its only block must be computed anyway");
  assert(!cache.isComputing(running, sequenceOf(promptOf(100, 1))));
  assert(!cache.isComputing(running, sequenceOf(promptOf(100), 101, "salt")));
  compute(cache, running, 40);
  assert(!cache.isComputing(running, sequenceOf(promptOf(40))));
  assert(cache.isComputing(running, sequenceOf(promptOf(70))));
  compute(cache, running, 99);
  assert(
    !cache.isComputing(running, sequenceOf(promptOf(200))),
    "the block is not full by what it has to compute",
  );
});

Deno.test("taking more than was reserved is an error", () => {
  const cache = new KvCache(2);
  const sequence = sequenceOf(promptOf(5), 64);
  assert(cache.admit(sequence));
  assertThrows(() => cache.extend(sequence, 65), Error, "without a reservation");
});

Deno.test("random lives of sequences: no block is lost, held twice for writing, or shared wrongly", () => {
  let seed = 5;
  const roll = (below: number) => (seed = (seed * 48271) % 0x7fffffff) % below;
  const cache = new KvCache(40);
  const contents = new Map<number, string>(); // what was computed into each block, with all before it
  const alive: Sequence[] = [];
  for (let round = 0; round < 20_000; round++) {
    if (roll(3) === 0) {
      const tokens = [...promptOf(roll(150)), ...promptOf(1 + roll(80), roll(5))];
      const sequence = sequenceOf(tokens, tokens.length + 1 + roll(100), ["", "a"][roll(2)]);
      if (cache.admit(sequence)) alive.push(sequence);
    }
    const sequence = alive[roll(alive.length || 1)];
    if (!sequence) continue;
    const end = Math.min(sequence.length, sequence.cached + 1 + roll(50));
    cache.extend(sequence, end);
    for (let block = Math.floor(sequence.cached / KV_BLOCK_TOKENS); block * KV_BLOCK_TOKENS < end; block++) {
      assert(alive.every((other) => other === sequence || !held(other).includes(sequence.blocks[block])));
      const text = sequence.tokens.subarray(0, Math.min(end, (block + 1) * KV_BLOCK_TOKENS));
      contents.set(sequence.blocks[block], sequence.salt + text.join());
    }
    sequence.cached = end;
    cache.share(sequence);
    held(sequence).slice(0, Math.floor(end / KV_BLOCK_TOKENS)).forEach((block, i) => {
      assertEquals(
        contents.get(block),
        sequence.salt + sequence.tokens.subarray(0, (i + 1) * KV_BLOCK_TOKENS).join(),
      );
    });
    if (end === sequence.length || roll(20) === 0) {
      cache.release(sequence);
      alive.splice(alive.indexOf(sequence), 1);
    }
  }
  for (const sequence of alive) cache.release(sequence);
  assertEquals(cache.used, 0);
});
