import { assertEquals } from "@std/assert";
import { finish } from "../pacing/pauses.ts";
import { mergePairs } from "./merge.ts";
import { PairTable } from "./pair_table.ts";
import { randomIntegers } from "./testing.ts";

type Rule = [left: number, right: number, priority: number, merged: number];

function tableOf(rules: Rule[]): PairTable {
  const table = new PairTable(rules.length);
  for (const rule of rules) table.add(...rule);
  return table;
}

function merge(rules: Rule[], symbols: number[]): number[] {
  const buffer = Int32Array.from(symbols);
  return [...buffer.subarray(0, finish(mergePairs(buffer, buffer.length, tableOf(rules))))];
}

/** Returns the symbols after applying the first rule at its leftmost position, until no rule applies. */
function mergeNaively(rules: Rule[], symbols: number[]): number[] {
  const left = [...symbols];
  for (;;) {
    let best: { at: number; rule: Rule } | undefined;
    for (let at = 0; at + 1 < left.length; at++) {
      const rule = rules.find(([a, b]) => a === left[at] && b === left[at + 1]);
      if (rule && (!best || rule[2] < best.rule[2])) best = { at, rule };
    }
    if (!best) return left;
    left.splice(best.at, 2, best.rule[3]);
  }
}

Deno.test("merge: merges the pair of lowest priority first, the leftmost among equals", () => {
  const rules: Rule[] = [[1, 2, 1, 10], [2, 3, 0, 11], [1, 1, 2, 12]];
  assertEquals(merge(rules, [1, 2, 3]), [1, 11]);
  assertEquals(merge(rules, [1, 2, 1, 2, 3]), [10, 1, 11]);
  assertEquals(merge(rules, [1, 1, 1]), [12, 1]);
  assertEquals(merge(rules, []), []);
  assertEquals(merge(rules, [1]), [1]);
});

Deno.test("merge: symbols with a negative id never merge", () => {
  assertEquals(merge([[1, 1, 0, 2]], [1, -1, 1, 1, -7]), [1, -1, 2, -7]);
});

Deno.test("merge: equals merging one pair at a time, for random rules and symbols", () => {
  const random = randomIntegers(3);
  for (let i = 0; i < 1500; i++) {
    const rules: Rule[] = [];
    for (let merged = 4; merged < 4 + random(12); merged++) {
      const pair: [number, number] = [random(merged), random(merged)];
      // Pairs may share a priority or a merged token, as in vocabularies with scores.
      const isNew = !rules.some(([a, b]) => a === pair[0] && b === pair[1]);
      if (isNew) rules.push([...pair, random(6), merged]);
    }
    const symbols = Array.from({ length: random(40) }, () => random(4));
    assertEquals(merge(rules, symbols), mergeNaively(rules, symbols), JSON.stringify({ rules, symbols }));
  }
});

Deno.test("merge: a million symbols take n log n time", () => {
  const rules: Rule[] = Array.from({ length: 16 }, (_, i) => [i, i, i, i + 1]);
  const buffer = new Int32Array(1 << 20);
  assertEquals(finish(mergePairs(buffer, buffer.length, tableOf(rules))), 16);
  assertEquals(buffer[0], 16);
});

Deno.test("pair table: grows when it is full, and keeps the first of equal pairs", () => {
  const table = new PairTable(0);
  for (let i = 0; i < 1000; i++) table.add(i, i * 7, i, i + 1);
  table.add(5, 35, 1, 1);
  for (let i = 0; i < 1000; i++) {
    const slot = table.find(i, i * 7);
    assertEquals([table.priority[slot], table.merged[slot]], [i, i + 1]);
  }
  assertEquals(table.find(1, 8), -1);
});
