import type { Slot } from "./slot.ts";

/** Milliseconds between closing a model and the garbage collection, so that its last requests have released it. */
const COLLECT_MS = 1000;
/** Longest delay of a timer, in milliseconds. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The pool's timers: when idle models are unloaded, and when the memory of closed models is collected. */
export class PoolTimers {
  #idle: ReturnType<typeof setTimeout> | undefined;
  #collect: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  /** `unload` is called after idle models were marked for unloading, `keepMs` after their last use. */
  constructor(
    private readonly slots: () => Iterable<Slot>,
    private readonly unload: () => void,
  ) {}

  /** Schedules one garbage collection for all engines that were closed until then. */
  collectSoon(): void {
    if (this.#isStopped || this.#collect !== undefined) return;
    this.#collect = setTimeout(() => {
      this.#collect = undefined;
      startCollection();
    }, COLLECT_MS);
    Deno.unrefTimer(this.#collect);
  }

  /** Sets a timer for the moment when the next model has been idle long enough. */
  watchIdle(): void {
    if (this.#isStopped) return;
    clearTimeout(this.#idle);
    const idle = [...this.slots()].filter(({ engine, isIdle }) => engine !== undefined && isIdle);
    const due = Math.min(...idle.map(({ dueAt }) => dueAt));
    if (due === Infinity) return;
    this.#idle = setTimeout(() => {
      const now = performance.now();
      for (const slot of idle) if (slot.isOpen && slot.isIdle && slot.dueAt <= now) slot.isUnloading = true;
      this.unload();
      this.watchIdle();
    }, Math.min(Math.max(1, due - performance.now() + 1), MAX_TIMER_MS));
    Deno.unrefTimer(this.#idle);
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#idle);
    clearTimeout(this.#collect);
  }
}

/** Resolves with the promise, or after `ms` milliseconds. */
export async function later(event: Promise<void>, ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout>;
  const time = new Promise<void>((resolve) => timer = setTimeout(resolve, ms));
  await Promise.race([event, time]).finally(() => clearTimeout(timer));
}

/**
 * Bytes to allocate outside V8's heap so that V8 starts a collection, even with a nearly empty heap. By trial, 200 MiB
 * are too few.
 */
const NOTICED_BYTES = 2 ** 30;

/**
 * Makes V8 start a garbage collection in the background. An idle server might otherwise keep an unloaded model's
 * vocabulary forever. Allocating is the only way a program can trigger this. The allocated bytes are never touched, so
 * they occupy no memory.
 */
function startCollection(): void {
  try {
    new ArrayBuffer(NOTICED_BYTES).transfer(0);
  } catch {
    // The allocation failed, so V8 has just collected everything to make room.
  }
}
