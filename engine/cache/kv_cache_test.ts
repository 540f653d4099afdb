import { assert, assertEquals } from "@std/assert";
import { KV_BLOCK_TOKENS } from "../backend/backend.ts";
import { blocksOfSequence, longestSequence } from "./kv_blocks.ts";
import { KvCache } from "./kv_cache.ts";
import type { PrefixStore } from "./prefix_store.ts";
import { newParts, type Sequence } from "../schedule/sequence.ts";
import { promptOf } from "../../testing/engine.ts";

/** Returns the fields of a sequence that the cache uses. */
function sequenceOf(tokens: number[], maxLength = tokens.length + 1, salt = ""): Sequence {
  return {
    ...newParts(false),
    promptLogprobs: false,
    tokens: Int32Array.from(tokens),
    length: tokens.length,
    maxLength,
    salt,
    prefixKey: salt,
  } as Sequence;
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
  cache.advance(sequence, tokens - sequence.kv.cached);
  return sequence;
}

function held(sequence: Sequence): number[] {
  return [...sequence.kv.blocks.subarray(0, sequence.kv.blockCount)];
}

Deno.test("KvCache: a sequence holds blocks for its tokens, takes more as it grows and releases all", () => {
  const cache = new KvCache(10);
  const first = sequenceOf(promptOf(40), 10_000);
  assert(admit(cache, first));
  assertEquals([cache.used, cache.total, first.kv.blockCount], [2, 10, 2]);
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

Deno.test("KvCache: later and concurrent sequences share full blocks", () => {
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
  assertEquals(third.kv.cached, 96);
});

Deno.test("KvCache: the last token is never taken from the cache", () => {
  const cache = new KvCache(20);
  cache.release(run(cache, sequenceOf(promptOf(64))));
  for (const [length, cached] of [[32, 0], [33, 32], [64, 32], [65, 64]]) {
    const sequence = sequenceOf(promptOf(length));
    assert(admit(cache, sequence));
    assertEquals(sequence.kv.cached, cached, `${length} tokens`);
    cache.release(sequence);
  }
});

Deno.test("KvCache: different salts share no prefix", () => {
  const cache = new KvCache(20);
  cache.release(run(cache, sequenceOf(promptOf(64), 65, "alice")));
  for (const [salt, cached] of [["bob", 0], ["", 0], ["alice", 32]] as const) {
    const sequence = sequenceOf(promptOf(64), 65, salt);
    assert(admit(cache, sequence));
    assertEquals(sequence.kv.cached, cached, salt);
    cache.release(sequence);
  }
});

Deno.test("KvCache: blocks whose hashes collide by chance are not shared, and stay usable", () => {
  const cache = new KvCache(20);
  const collide = (sequence: Sequence) => {
    sequence.kv.hashes.push(1, 2);
    return sequence;
  };
  const first = run(cache, collide(sequenceOf(promptOf(70))));
  for (const other of [sequenceOf(promptOf(70, 1)), sequenceOf(promptOf(70), 71, "salt")]) {
    run(cache, collide(other));
    assertEquals(other.kv.indexed, 0);
    assertEquals(new Set([...held(first), ...held(other)]).size, 6);
    cache.release(other);
  }
  // An equal second block after another first block is a different block.
  const late = sequenceOf([...promptOf(32, 5), ...promptOf(70).slice(32)]);
  late.kv.hashes.push(7, 2);
  assertEquals(run(cache, late).kv.indexed, 1);
  assert(held(late)[1] !== held(first)[1]);
});

Deno.test("KvCache: sequences that computed the same block end up sharing one", () => {
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

Deno.test("KvCache: evicts least recently used blocks first, and the end of a chain before its start", () => {
  const longest = (seed: number) => {
    const cache = new KvCache(6);
    cache.release(run(cache, sequenceOf(promptOf(96, 1)))); // 3 full blocks
    cache.release(run(cache, sequenceOf(promptOf(64, 2)))); // 2 full blocks
    cache.release(run(cache, sequenceOf(promptOf(40, 3)))); // 1 free, 1 taken from the end of the first chain
    const sequence = sequenceOf(promptOf(100, seed));
    assert(admit(cache, sequence));
    return sequence.kv.cached;
  };
  assertEquals([1, 2, 3].map(longest), [64, 64, 32]);
});

Deno.test("KvCache: isComputing tells whether the next shareable block is being computed", () => {
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

Deno.test("KvCache: extend takes no block if too few are free, until other sequences release blocks", () => {
  const cache = new KvCache(4);
  const [first, second] = [sequenceOf(promptOf(40), 200), sequenceOf(promptOf(40, 1), 200)];
  assert(admit(cache, first) && admit(cache, second));
  assert(!cache.extend(first, 65));
  assertEquals([first.kv.blockCount, cache.available], [2, 0]);
  compute(cache, second, 40);
  cache.release(second);
  assert(cache.extend(first, 128));
  assertEquals(cache.missing(second, 0), 2);
});

Deno.test("KvCache: a preempted sequence reuses its blocks that were not evicted", () => {
  const cache = new KvCache(8);
  const preempted = run(cache, sequenceOf(promptOf(150), 300)); // 4 full blocks
  cache.release(preempted);
  const other = run(cache, sequenceOf(promptOf(180, 1))); // the 4 other blocks, and 2 of the preempted
  assertEquals(cache.missing(preempted, 0), 3);
  cache.release(other);
  assert(admit(cache, preempted));
  assertEquals(preempted.kv.cached, 64);
});

Deno.test("KvCache: random growing sequences lose no block and share no block wrongly", () => {
  randomLives(new KvCache(40), 40);
});

Deno.test("KvCache: random sequences with windows stay correct in every group within their windows", () => {
  const windows = [40, 0, 5];
  const cache = new KvCache(130, undefined, { windows, maxRows: 50 });
  const shared = randomLives(cache, 130, windows);
  assert(shared > 10_000, `only ${shared} tokens were found again`);
});

/** Returns a sequence's blocks by group and position: "1 5" is the sixth block of the second group. */
function places(sequence: Sequence): Map<string, number> {
  const all = new Map(held(sequence).map((block, i) => [`0 ${i}`, block]));
  for (const [group, { blocks, first, end }] of sequence.kv.windows.entries()) {
    for (let i = first; i < end; i++) all.set(`${group + 1} ${i}`, blocks[i]);
  }
  return all;
}

/** Runs sequences that come, grow and leave at random. Returns how many tokens they found in the cache. */
function randomLives(cache: KvCache, total: number, windows: readonly number[] = []): number {
  let seed = 5;
  let shared = 0;
  let preempted = 0;
  const roll = (below: number) => (seed = (seed * 48271) % 0x7fffffff) % below;
  const contents = new Map<number, string>(); // tokens of each block, with all earlier ones
  const alive: Sequence[] = [];
  const enter = (sequence: Sequence) => {
    if (!admit(cache, sequence)) return;
    alive.push(sequence);
    shared += sequence.kv.cached;
  };
  for (let round = 0; round < 20_000; round++) {
    if (roll(3) === 0) {
      const tokens = [...promptOf(roll(150)), ...promptOf(1 + roll(80), roll(5))];
      const sequence = sequenceOf(tokens, tokens.length + 1 + roll(100), ["", "a"][roll(2)]);
      sequence.length = 1 + roll(tokens.length);
      enter(sequence);
    }
    const sequence = alive[roll(alive.length || 1)];
    if (!sequence) continue;
    const { cached } = sequence.kv;
    const end = Math.min(sequence.length, cached + 1 + roll(50));
    if (!cache.extend(sequence, sequence.length)) {
      const victim = alive.splice(roll(alive.length), 1)[0];
      cache.release(victim);
      preempted++;
      enter(victim);
      continue;
    }
    const others = new Set(alive.flatMap((other) => other === sequence ? [] : [...places(other).values()]));
    const mine = places(sequence);
    const textTo = (tokens: number) => sequence.salt + sequence.tokens.subarray(0, tokens).join();
    for (const [group, window] of [0, ...windows].entries()) {
      const first = window === 0 ? 0 : Math.max(0, cached + 1 - window);
      for (let i = Math.floor(first / KV_BLOCK_TOKENS); i * KV_BLOCK_TOKENS < end; i++) {
        const block = mine.get(`${group} ${i}`)!;
        const [from, to] = [i * KV_BLOCK_TOKENS, (i + 1) * KV_BLOCK_TOKENS];
        if (to <= cached) assertEquals(contents.get(block), `${group} ${textTo(to)}`);
        else {
          assert(!others.has(block), "a block is written that another holds");
          if (from < cached) assertEquals(contents.get(block), `${group} ${textTo(cached)}`);
          contents.set(block, `${group} ${textTo(Math.min(end, to))}`);
        }
      }
    }
    cache.advance(sequence, end - cached);
    for (const [place, block] of places(sequence)) {
      const [group, i] = place.split(" ").map(Number);
      const to = (i + 1) * KV_BLOCK_TOKENS;
      if (to <= end) assertEquals(contents.get(block), `${group} ${textTo(to)}`);
    }
    assertEquals(new Set(alive.flatMap((one) => [...places(one).values()])).size, cache.used);
    if (end === sequence.length) sequence.length = Math.min(sequence.tokens.length, end + roll(40));
    if (end === sequence.length || roll(20) === 0) {
      cache.release(sequence);
      alive.splice(alive.indexOf(sequence), 1);
    }
  }
  assert(preempted > 100, `only ${preempted} were preempted`);
  for (const sequence of alive) cache.release(sequence);
  assertEquals([cache.used, cache.available], [0, total]);
  return shared;
}

/** Computes all tokens in steps of at most 32 rows. Returns the maximum number of blocks held. */
function chunks(cache: KvCache, sequence: Sequence): number {
  let most = 0;
  while (sequence.kv.cached < sequence.length) {
    assert(cache.extend(sequence, sequence.length));
    most = Math.max(most, cache.held(sequence));
    cache.advance(sequence, Math.min(32, sequence.length - sequence.kv.cached));
  }
  return most;
}

Deno.test("KvCache: a group with a window holds blocks of the window only", () => {
  const demand = { windows: [64], maxRows: 32 };
  const cache = new KvCache(200, undefined, demand);
  const sequence = sequenceOf(promptOf(3200), 5000);
  assert(admit(cache, sequence));
  // 95 tokens from the first row's window to the last row take three blocks here, and at most four in general.
  assertEquals(chunks(cache, sequence), 100 + 3);
  assertEquals(blocksOfSequence(demand, 3200), 100 + 4);
  assertEquals([cache.used, cache.held(sequence)], [102, 102]);
  assertEquals(longestSequence(demand, 104), 3200);
  for (let i = 0; i < 400; i++) {
    assert(cache.extend(sequence, ++sequence.length));
    cache.advance(sequence, 1);
    const { first, end } = sequence.kv.windows[0];
    assertEquals([first, end], [
      Math.floor((sequence.kv.cached - 63) / 32),
      Math.ceil(sequence.kv.cached / 32),
    ]);
  }
});

Deno.test("KvCache: shares a prefix up to the last position whose window is still in memory", () => {
  const demand = { windows: [64], maxRows: 32 };
  const shared = (blocks: number, prompt: number[]) => {
    const cache = new KvCache(blocks, undefined, demand);
    const first = sequenceOf(promptOf(321));
    assert(admit(cache, first));
    chunks(cache, first);
    cache.release(first);
    const second = sequenceOf(prompt);
    assert(admit(cache, second));
    return second.kv.cached;
  };
  const half = [...promptOf(200), ...promptOf(121, 1)];
  assertEquals(shared(40, promptOf(330)), 320);
  assertEquals(shared(40, half), 192);
  // Only the last window fits into the cache, so only the whole prefix can be reused.
  assertEquals(shared(15, promptOf(330)), 320);
  assertEquals(shared(15, half), 0);
});

Deno.test("KvCache: evicted window blocks are computed again and then found again", () => {
  const cache = new KvCache(30, undefined, { windows: [64], maxRows: 32 });
  const first = sequenceOf(promptOf(321));
  assert(admit(cache, first));
  chunks(cache, first);
  const other = sequenceOf(promptOf(300, 3)); // evicts the blocks of the first windows, which are the oldest
  assert(admit(cache, other));
  chunks(cache, other);
  const again = sequenceOf([...promptOf(200), ...promptOf(60, 1)]);
  cache.release(other);
  assert(admit(cache, again));
  assertEquals(again.kv.cached, 0);
  chunks(cache, again);
  cache.release(again);
  const last = sequenceOf([...promptOf(200), ...promptOf(60, 2)]);
  assert(admit(cache, last));
  assertEquals(last.kv.cached, 192);
  for (const sequence of [first, last]) cache.release(sequence);
  assertEquals([cache.used, cache.available], [0, 30]);
});

Deno.test("longestSequence: one sequence of the returned length always fits, wherever its blocks begin", () => {
  for (const windows of [[], [33], [1, 0], [64, 500, 7]]) {
    for (const maxRows of [1, 5, 32, 100]) {
      const demand = { windows, maxRows };
      const blocks = blocksOfSequence(demand, 1000);
      assertEquals(longestSequence(demand, blocks), 1024);
      assert(longestSequence(demand, blocks - 1) < 1000);
      const cache = new KvCache(blocks, undefined, demand);
      const sequence = sequenceOf(promptOf(1000), 1001);
      sequence.length = 700;
      assert(cache.missing(sequence, cache.growth(sequence)) <= 0);
      cache.admit(sequence);
      for (let i = 0; sequence.kv.cached < 1000; i++) {
        assert(cache.extend(sequence, sequence.length), `${windows} ${maxRows} at ${sequence.kv.cached}`);
        cache.advance(sequence, Math.min(sequence.length - sequence.kv.cached, 1 + (i * 7) % maxRows));
        if (sequence.kv.cached === sequence.length && sequence.length < 1000) sequence.length++;
      }
    }
  }
});

Deno.test("KvCache: cached prefixes stay within their share, and running sequences get every block", () => {
  const cache = new KvCache(10, undefined, undefined, undefined, 4);
  const first = run(cache, sequenceOf(promptOf(96)));
  cache.release(first);
  const second = run(cache, sequenceOf(promptOf(96, 1)));
  assertEquals(Math.max(...held(second)), 3, "the first one's blocks are evicted, and no fresh one is taken");
  assertEquals(cache.missing(sequenceOf(promptOf(224, 2)), 0), 0);
  const third = run(cache, sequenceOf(promptOf(224, 2)));
  assertEquals([cache.used, cache.available], [10, 0]);
  cache.release(second);
  cache.release(third);
  assertEquals(cache.available, 10);
  assert(admit(cache, sequenceOf(promptOf(320, 3))));
});

Deno.test("KvCache: admits a sequence that fits, with windows and a prefix that is partly in memory and partly on disk", () => {
  let admitted = 0;
  for (let total = 10; total < 30; total++) {
    const stored: PrefixStore = {
      has: () => true,
      reused: () => {},
      computed: () => {},
      released: () => {},
    };
    const cache = new KvCache(total, undefined, { windows: [40, 5], maxRows: 24 }, stored);
    const prompt = promptOf(243);
    const first = { ...sequenceOf(prompt.slice(0, 70)), promptLogprobs: true }; // reads nothing from the disk
    if (!admit(cache, first)) continue;
    chunks(cache, first);
    if (admit(cache, sequenceOf(prompt, 243))) admitted++;
  }
  assert(admitted > 0);
});
