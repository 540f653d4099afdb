/**
 * What a dispatch loads and computes, counted over its text: each lane's statements are walked through with what is known
 * of its uniforms and rows. A loop whose turns do not differ is walked once and counted as often as it turns.
 */
import type { Dispatched } from "./expressions.ts";
import { parse } from "./parse.ts";
import type { Module } from "./syntax.ts";
import { addCount, type Count, noCount, Tally } from "./tally.ts";
import { numberOf } from "./values.ts";
import { Differs, Walk } from "./walk.ts";

const modules = new Map<string, Module>();

function moduleOf(code: string): Module {
  let known = modules.get(code);
  if (!known) modules.set(code, known = parse(code));
  return known;
}

/**
 * Counts a dispatch. Of a grid's axis longer than `most` workgroups, the first, the last and some between stand for all, and some
 * lanes for those of a workgroup: a sum that is exact where they do the same, or grow evenly. `Infinity` walks through all.
 */
export function countDispatch(of: Dispatched, most = 3): Count {
  const module = moduleOf(of.code);
  const count = noCount();
  const axes = of.workgroups.map((size) => samples(size, most));
  for (const [z, timesZ] of axes[2]) {
    for (const [y, timesY] of axes[1]) {
      for (const [x, timesX] of axes[0]) {
        countWorkgroup(module, of, [x, y, z], timesX * timesY * timesZ, count, most);
      }
    }
  }
  return count;
}

/** Places along an axis, and how many each stands for: the first and last for themselves; or the middle for all. */
function samples(size: number, most: number): [number, number][] {
  if (size <= most) return Array.from({ length: size }, (_, i) => [i, 1]);
  if (most === 1) return [[size >> 1, size]];
  const between = most - 2;
  const middle = Array.from({ length: between }, (_, i): [number, number] => {
    return [1 + Math.round((i + 0.5) / between * (size - 2) - 0.5), (size - 2) / between];
  });
  return [[0, 1], ...middle, [size - 1, 1]];
}

/** Strata of lanes from which one is walked, where not all are: each at another place of its stratum. */
const STRATA = 32;

function laneSamples(lanes: number, most: number): [number, number][] {
  if (most === Infinity || lanes <= STRATA) return Array.from({ length: lanes }, (_, i) => [i, 1]);
  const stratum = lanes / STRATA;
  return Array.from(
    { length: STRATA },
    (_, i) => [Math.floor(i * stratum) + i % Math.floor(stratum), stratum],
  );
}

function countWorkgroup(
  module: Module,
  of: Dispatched,
  group: readonly [number, number, number],
  times: number,
  count: Count,
  most: number,
): void {
  const walk = (to: Count, times: number, lanes: number) => {
    return new Walk(module, of, group, new Tally(to, times, lanes));
  };
  const entry = module.functions.get(of.entryPoint)!;
  const lanes = numberOf(walk(count, 0, 1).value(entry.lanes!))!;
  // All lanes as one, where they take the same way; else each by itself.
  const trial = noCount();
  try {
    walk(trial, times * lanes, lanes).lane(entry, undefined);
    addCount(count, trial);
    return;
  } catch (error) {
    if (!(error instanceof Differs)) throw error;
  }
  for (const [lane, stands] of laneSamples(lanes, most)) {
    walk(count, times * stands, lanes).lane(entry, lane);
  }
}
