import { assert, assertEquals } from "@std/assert";
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

function admit(cache: KvCache, sequence: Sequence): boolean {
  const fits = cache.missing(sequence, 0) <= 0;
  if (fits) cache.admit(sequence);
  return fits;
}

/** Admits a sequence and computes all its tokens. */
function run(cache: KvCache, sequence: Sequence): Sequence {
  assert(admit(cache, sequence));
  return compute(cache, sequence, sequence.length);
}

function compute(cache: KvCache, sequence: Sequence, tokens: number): Sequence {
  assert(cache.extend(sequence, tokens));
  sequence.cached = tokens;
  cache.share(sequence);
  return sequence;
}

function held(sequence: Sequence): number[] {
  return [...sequence.blocks.subarray(0, sequence.blockCount)];
}

Deno.test("a sequence holds blocks for the tokens that it has, takes more as they fill, and gives all back", () => {
  const cache = new KvCache(10);
  const first = sequenceOf(promptOf(40), 10_000);
  assert(admit(cache, first));
  assertEquals([cache.used, cache.total, first.blockCount], [2, 10, 2]);
  assert(cache.extend(first, 64));
  assertEquals(cache.used, 2);
  assert(cache.extend(first, 65));
  assertEquals(cache.used, 3);
  assertEquals(cache.missing(sequenceOf(promptOf(225, 1)), 0), 1);
  const second = sequenceOf(promptOf(193, 1));
  assertEquals(cache.missing(second, 0), 0);
  assertEquals(cache.missing(second, 2), 2);
  assert(admit(cache, second));
  assertEquals([cache.used, cache.available], [10, 0]);
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
  assert(admit(cache, third));
  assertEquals(third.cached, 96);
});

Deno.test("the last token is never taken from the cache", () => {
  const cache = new KvCache(20);
  cache.release(run(cache, sequenceOf(promptOf(64))));
  for (const [length, cached] of [[32, 0], [33, 32], [64, 32], [65, 64]]) {
    const sequence = sequenceOf(promptOf(length));
    assert(admit(cache, sequence));
    assertEquals(sequence.cached, cached, `${length} tokens`);
    cache.release(sequence);
  }
});

Deno.test("salts keep prefixes apart", () => {
  const cache = new KvCache(20);
  cache.release(run(cache, sequenceOf(promptOf(64), 65, "alice")));
  for (const [salt, cached] of [["bob", 0], ["", 0], ["alice", 32]] as const) {
    const sequence = sequenceOf(promptOf(64), 65, salt);
    assert(admit(cache, sequence));
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
  assert(admit(cache, first) && admit(cache, second));
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
  const longest = (seed: number) => {
    const cache = new KvCache(6);
    cache.release(run(cache, sequenceOf(promptOf(96, 1)))); // 3 full blocks
    cache.release(run(cache, sequenceOf(promptOf(64, 2)))); // 2 full blocks
    cache.release(run(cache, sequenceOf(promptOf(40, 3)))); // 1 free, 1 taken from the end of the first chain
    const sequence = sequenceOf(promptOf(100, seed));
    assert(admit(cache, sequence));
    return sequence.cached;
  };
  assertEquals([1, 2, 3].map(longest), [64, 64, 32]);
});

Deno.test("a waiting sequence knows whether what it needs next is being computed", () => {
  const cache = new KvCache(20);
  const running = sequenceOf(promptOf(100));
  assert(admit(cache, running));
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

Deno.test("who finds fewer blocks than it needs takes none, until others give theirs back", () => {
  const cache = new KvCache(4);
  const [first, second] = [sequenceOf(promptOf(40), 200), sequenceOf(promptOf(40, 1), 200)];
  assert(admit(cache, first) && admit(cache, second));
  assert(!cache.extend(first, 65));
  assertEquals([first.blockCount, cache.available], [2, 0]);
  compute(cache, second, 40);
  cache.release(second);
  assert(cache.extend(first, 128));
  assertEquals(cache.missing(second, 0), 2);
});

Deno.test("a sequence that comes back finds of its blocks what nobody else took", () => {
  const cache = new KvCache(8);
  const preempted = run(cache, sequenceOf(promptOf(150), 300)); // 4 full blocks
  cache.release(preempted);
  const other = run(cache, sequenceOf(promptOf(180, 1))); // the 4 others, and 2 of those
  assertEquals(cache.missing(preempted, 0), 3);
  cache.release(other);
  assert(admit(cache, preempted));
  assertEquals(preempted.cached, 64);
});

Deno.test("random lives of sequences that grow: no block is lost, held twice for writing, or shared wrongly", () => {
  let seed = 5;
  const roll = (below: number) => (seed = (seed * 48271) % 0x7fffffff) % below;
  const cache = new KvCache(40);
  const contents = new Map<number, string>(); // what was computed into each block, with all before it
  const alive: Sequence[] = [];
  let preempted = 0;
  for (let round = 0; round < 20_000; round++) {
    if (roll(3) === 0) {
      const tokens = [...promptOf(roll(150)), ...promptOf(1 + roll(80), roll(5))];
      const sequence = sequenceOf(tokens, tokens.length + 1 + roll(100), ["", "a"][roll(2)]);
      sequence.length = 1 + roll(tokens.length);
      if (admit(cache, sequence)) alive.push(sequence);
    }
    const sequence = alive[roll(alive.length || 1)];
    if (!sequence) continue;
    const end = Math.min(sequence.length, sequence.cached + 1 + roll(50));
    if (!cache.extend(sequence, end)) {
      const victim = alive.splice(roll(alive.length), 1)[0];
      cache.release(victim);
      preempted++;
      if (admit(cache, victim)) alive.push(victim);
      continue;
    }
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
    if (end === sequence.length) sequence.length = Math.min(sequence.tokens.length, end + roll(40));
    if (end === sequence.length || roll(20) === 0) {
      cache.release(sequence);
      alive.splice(alive.indexOf(sequence), 1);
    }
  }
  assert(preempted > 100);
  for (const sequence of alive) cache.release(sequence);
  assertEquals(cache.used, 0);
});
