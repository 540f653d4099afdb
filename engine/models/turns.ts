import type { Slot } from "./slot.ts";

/** Rules for when a model gives its memory to another, in milliseconds. */
export interface TurnRules {
  /** Milliseconds that an interactive request waits before models in use must make room. */
  readonly patienceMs: number;
  /** Minimum milliseconds for which a loaded model keeps its memory while requests use it. */
  readonly turnMs: number;
  /**
   * Minimum milliseconds for which a batch's model keeps its memory while another batch waits. Longer than `turnMs`,
   * because loading takes time.
   */
  readonly batchTurnMs: number;
  /** Milliseconds for which a batch's model may be idle between two lines. */
  readonly pauseMs: number;
  /** Milliseconds after a request's use for which batches do not replace the model. */
  readonly quietMs: number;
}

export const DEFAULT_TURNS: TurnRules = {
  patienceMs: 1000,
  turnMs: 3000,
  batchTurnMs: 5 * 60_000,
  pauseMs: 2000,
  quietMs: 30_000,
};

/** Models that may make room for another: `idle` ones can be unloaded now, `busy` ones after their running requests. */
export interface Victims {
  readonly idle: readonly Slot[];
  readonly busy: readonly Slot[];
}

/** Returns the loaded models that may give their memory to `wanted`, in the order to unload them. */
export function victimsFor(wanted: Slot, slots: readonly Slot[], now: number, rules: TurnRules): Victims {
  const others = slots.filter((slot) => slot !== wanted && slot.engine !== undefined && !slot.isClosing);
  const isUrgent = wanted.isUrgent;
  const isLeftAlone = (slot: Slot) =>
    !isUrgent && (slot.holds.interactive > 0 || slot.isUrgent || now - slot.interactiveAt < rules.quietMs);
  const hasHadTurn = (slot: Slot) => {
    if (slot.isUnloading || slot.engine!.state === "failed") return true;
    if (isUrgent && slot.holds.interactive === 0) return true; // only batches use it, and batches wait
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

/** Returns the unloaded models that requests wait for: interactive requests first, then the longest wait. */
export function inLine(slots: readonly Slot[]): Slot[] {
  return slots.filter(({ engine, waiters }) => engine === undefined && waiters.size > 0)
    .sort((a, b) => Number(b.isUrgent) - Number(a.isUrgent) || a.waitsSince - b.waitsSince);
}

/** Returns the shortest prefix of the models with at least `bytes` in total; undefined if all together have less. */
export function enough(slots: readonly Slot[], bytes: number): Slot[] | undefined {
  let found = 0;
  const count = slots.findIndex((slot) => (found += slot.bytes) >= bytes);
  return bytes <= 0 ? [] : count < 0 ? undefined : slots.slice(0, count + 1);
}

/** Returns the models to close as soon as they are unused. */
export function leaving(slots: readonly Slot[]): Slot[] {
  return slots.filter(({ engine, takesNone }) => engine !== undefined && takesNone);
}
