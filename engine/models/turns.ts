import type { Slot } from "./slot.ts";

/** When a model gives its room to another; in milliseconds. */
export interface TurnRules {
  /** A request that is no batch's waits so long before models in use are to make room. */
  readonly patienceMs: number;
  /** A model keeps its room at least so long once it is loaded, where requests use it. */
  readonly turnMs: number;
  /** The same where a batch uses it and another batch waits: reading a model takes time too. */
  readonly batchTurnMs: number;
  /** A batch's model may be idle for so long between two lines. */
  readonly pauseMs: number;
  /** Batches leave a model alone that a request has used within this time. */
  readonly quietMs: number;
}

export const DEFAULT_TURNS: TurnRules = {
  patienceMs: 1000,
  turnMs: 3000,
  batchTurnMs: 5 * 60_000,
  pauseMs: 2000,
  quietMs: 30_000,
};

/** Who makes room for a model: all of `idle` can be unloaded now, `busy` when what runs in them has ended. */
export interface Victims {
  readonly idle: readonly Slot[];
  readonly busy: readonly Slot[];
}

/** The loaded models that may give their room to `wanted`, those to go first in front. */
export function victimsFor(wanted: Slot, slots: readonly Slot[], now: number, rules: TurnRules): Victims {
  const others = slots.filter((slot) => slot !== wanted && slot.engine !== undefined && !slot.isClosing);
  const isUrgent = wanted.isUrgent;
  const isLeftAlone = (slot: Slot) =>
    !isUrgent && (slot.holds.interactive > 0 || slot.isUrgent || now - slot.interactiveAt < rules.quietMs);
  const hasHadTurn = (slot: Slot) => {
    if (slot.isUnloading || slot.engine!.state === "failed") return true;
    if (isUrgent && slot.holds.interactive === 0) return true; // batches wait
    const turn = isUrgent ? rules.turnMs : rules.batchTurnMs;
    return now - slot.loadedAt >= turn && (!isUrgent || now - wanted.waitsSince >= rules.patienceMs);
  };
  const isDone = (slot: Slot) => isUrgent || now - slot.usedAt >= rules.pauseMs || hasHadTurn(slot);
  const free = others.filter((slot) => !isLeftAlone(slot));
  return {
    idle: free.filter((slot) => slot.isIdle && isDone(slot)).sort((a, b) => a.usedAt - b.usedAt),
    busy: free.filter((slot) => !slot.isIdle && hasHadTurn(slot)).sort((a, b) =>
      a.holds.interactive - b.holds.interactive || a.loadedAt - b.loadedAt
    ),
  };
}

/** Models without an engine that requests wait for: those of requests that are no batch's first, then who waits longest. */
export function inLine(slots: readonly Slot[]): Slot[] {
  return slots.filter(({ engine, waiters }) => engine === undefined && waiters.size > 0)
    .sort((a, b) => Number(b.isUrgent) - Number(a.isUrgent) || a.waitsSince - b.waitsSince);
}

/** The first of these whose room together is at least `bytes`; undefined where all are too few. */
export function enough(slots: readonly Slot[], bytes: number): Slot[] | undefined {
  let found = 0;
  const count = slots.findIndex((slot) => (found += slot.bytes) >= bytes);
  return bytes <= 0 ? [] : count < 0 ? undefined : slots.slice(0, count + 1);
}
