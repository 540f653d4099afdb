import { assert, assertEquals } from "@std/assert";
import { EventStream } from "./event_stream.ts";
import { append } from "../output/publish.ts";
import { longestSequence } from "../cache/kv_blocks.ts";
import { createSequence } from "../schedule/request.ts";
import { Scheduler } from "../schedule/scheduler.ts";
import type { Sequence } from "../schedule/sequence.ts";
import { everyNth } from "../../testing/tier.ts";
import { ByteTokenizer, FAKE_VOCABULARY, promptOf } from "../../testing/engine.ts";

/* Tests the scheduler without an engine: no sequence starves, whichever resource runs out. */

Deno.test("scheduler: a sequence without a token limit allocates only the blocks that it uses", () => {
  const sequence = sequenceOf(0, promptOf(20), { contextLength: 1_000_000 });
  const scheduler = new Scheduler({ parallel: 1, kvBlocks: 40_000, maxRows: 512, maxLogitRows: 1, queue: 1 });
  scheduler.add(sequence);
  for (let i = 0; i < 100; i++) {
    const [part] = scheduler.schedule();
    scheduler.advance(part);
    append(sequence, 7);
  }
  assertEquals(sequence.length, 120);
  assert(sequence.tokens.length <= 256 && sequence.kv.blocks.length <= 8);
  assertEquals(scheduler.cache.used, 4);
});

Deno.test("scheduler, in random pools with tenants of different weights: every sequence ends", () => {
  let [preemptions, rows, needed] = [0, 0, 0];
  for (const seed of everyNth(8, Array.from({ length: 1000 }, (_, i) => i + 1))) {
    const life = new RandomLife(seed, seed % 2 === 0, 2 + seed % 3);
    while (life.step());
    preemptions += life.scheduler.preemptions;
    rows += life.rows;
    needed += life.needed;
  }
  assert(preemptions > 500, `only ${preemptions} preemptions`);
  // Tenants that preempt each other cause more repeated rows than preemptions for memory alone.
  assert(rows < 1.75 * needed, `${rows} rows computed for ${needed} tokens`);
});

for (const windowed of [false, true]) {
  const name = windowed ? "in a thousand random pools for layers with windows" : "in a thousand random pools";
  Deno.test(`scheduler, ${name}: every sequence ends, and the earliest is never preempted for memory`, () => {
    let preemptions = 0;
    let rows = 0;
    let needed = 0;
    for (let seed = 1; seed <= 1000; seed++) {
      const life = new RandomLife(seed, windowed);
      while (life.step());
      preemptions += life.scheduler.preemptions;
      rows += life.rows;
      needed += life.needed;
    }
    assert(preemptions > 5000, `only ${preemptions} preemptions`);
    assert(rows < 1.5 * needed, `${rows} rows computed for ${needed} tokens`);
  });
}

/** Runs sequences that come, grow, pause and leave at random in a pool of random size. */
class RandomLife {
  readonly scheduler: Scheduler;
  readonly #roll: (below: number) => number;
  readonly #contextLength: number;
  readonly #readers = new Map<Sequence, { full: boolean }>();
  /** Number of tokens that each sequence has yet to generate. */
  readonly #left = new Map<Sequence, number>();
  readonly #requests: number;
  #arrived = 0;
  rows = 0;
  /** Number of rows that would be computed without any preemption. */
  needed = 0;

  /** With several tenants, the earliest sequence may be preempted: another tenant may get its place. */
  constructor(seed: number, windowed: boolean, private readonly tenants = 1) {
    const roll = (below: number) => (seed = (seed * 48271) % 0x7fffffff) % below;
    for (let i = 0; i < 9; i++) roll(2); // The first numbers of neighbouring seeds are alike.
    this.#roll = roll;
    const parallel = 1 + roll(8);
    const kvWindows = windowed ? Array.from({ length: 1 + roll(3) }, () => roll(4) * roll(60)) : [];
    const kvBlocks = 1 + roll(24) + kvWindows.length * (1 + roll(24));
    const contextLength = 2 + roll(400);
    const stateSlots = roll(3) === 0 ? parallel + 1 + roll(5) : undefined;
    const maxRows = parallel + roll(100);
    this.#contextLength = Math.min(longestSequence({ windows: kvWindows, maxRows }, kvBlocks), contextLength);
    const kvCached = 1 + roll(kvBlocks);
    const limits = { parallel, kvBlocks, kvCached, kvWindows, maxRows, maxLogitRows: parallel, queue: 1000 };
    // In short slices, tenants exchange memory too.
    this.scheduler = new Scheduler({ ...limits, stateSlots, slice: tenants > 1 ? 4 << roll(4) : undefined });
    this.#requests = 4 + roll(12);
  }

  /** Runs one step. Returns false when all sequences have ended. */
  step(): boolean {
    const { scheduler } = this;
    if (this.#arrived < this.#requests && this.#roll(4) === 0) this.#arrive();
    for (const reader of this.#readers.values()) if (this.#roll(40) === 0) reader.full = !reader.full;
    if (this.#roll(300) === 0) this.#leave(scheduler.sequences()[0]);
    const earliest = this.#earliest();
    const before = scheduler.preemptions;
    const step = scheduler.schedule();
    if (earliest && this.tenants === 1) assert(earliest.kv.blockCount > 0, "the earliest was preempted");
    for (const { sequence, rows } of step) assert(sequence.kv.blockCount * 32 >= sequence.kv.cached + rows);
    const ready = [...this.#readers].filter(([, { full }]) => !full);
    if (ready.length > 0) assert(step.length > 0, "somebody is ready, and nobody runs");
    assert(scheduler.preemptions - before < 20);
    for (const part of step) this.#compute(part);
    return this.#arrived < this.#requests || this.#readers.size > 0;
  }

  #arrive(): void {
    const contextLength = this.#contextLength;
    const length = 1 + this.#roll(contextLength - 1);
    const answer = 1 + this.#roll(contextLength - length);
    const batch = this.#roll(2) === 0;
    const sequence = sequenceOf(this.#arrived++, promptOf(length, this.#roll(3)), {
      contextLength,
      batch,
      tenant: this.tenants > 1 ? this.#roll(this.tenants) : 0,
    });
    const reader = { full: false };
    Object.defineProperty(sequence.stream, "full", { get: () => reader.full });
    this.#readers.set(sequence, reader);
    this.#left.set(sequence, answer);
    this.needed += length + answer - 1;
    this.scheduler.add(sequence);
  }

  /**
   * Returns the sequence that must not be preempted: the earliest running interactive one with a reader that keeps
   * up, or else the earliest batch one.
   */
  #earliest(): Sequence | undefined {
    const running = this.scheduler.sequences().filter((sequence) =>
      sequence.kv.blockCount > 0 && !this.#readers.get(sequence)!.full
    );
    const interactive = this.scheduler.sequences().some(({ batch }) => !batch);
    return interactive ? running.find(({ batch }) => !batch) : running[0];
  }

  #compute(part: ReturnType<Scheduler["schedule"]>[number]): void {
    const { sequence, rows, samples } = part;
    this.scheduler.advance(part);
    this.rows += rows;
    if (!samples) return;
    append(sequence, this.#roll(3));
    const left = this.#left.get(sequence)! - 1;
    this.#left.set(sequence, left);
    if (left === 0 || sequence.length === sequence.maxLength) this.#leave(sequence);
  }

  #leave(sequence: Sequence | undefined): void {
    if (!sequence) return;
    this.scheduler.remove(sequence);
    this.#readers.delete(sequence);
  }
}

function sequenceOf(
  id: number,
  prompt: number[],
  { contextLength, batch = false, tenant = 0 }: { contextLength: number; batch?: boolean; tenant?: number },
): Sequence {
  const stream = new EventStream({ start() {}, leave() {}, resume() {} });
  const context = {
    id,
    stream,
    tokenizer: new ByteTokenizer(),
    vocabSize: FAKE_VOCABULARY,
    draws: false,
    stores: false,
  };
  const priority = batch ? "batch" : "interactive";
  const request = { prompt, priority, cacheSalt: String(tenant), weight: 1 + tenant } as const;
  return createSequence(request, { ...context, contextLength });
}
