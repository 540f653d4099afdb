import { assertEquals } from "@std/assert";
import { Random } from "../testing/random.ts";
import { Ranges } from "./ranges.ts";

Deno.test("ranges: merge when they touch, and report gaps in order", () => {
  const ranges = new Ranges([[10, 20], [30, 40]]);
  assertEquals(ranges.gap(0, 100), [0, 10]);
  assertEquals(ranges.gap(12, 100), [20, 30]);
  assertEquals(ranges.gap(35, 40), undefined);
  ranges.add(20, 30);
  assertEquals(ranges.pairs, [[10, 40]]);
  ranges.remove(15, 20);
  assertEquals(ranges.pairs, [[10, 15], [20, 40]]);
  assertEquals([ranges.bytes, ranges.covers(20, 40), ranges.covers(14, 16)], [25, true, false]);
});

Deno.test("ranges: equal a set of bytes under random additions and removals", () => {
  const random = new Random(1);
  const below = (n: number) => random.word() % n;
  for (let round = 0; round < 200; round++) {
    const ranges = new Ranges();
    const bytes = new Set<number>();
    for (let step = 0; step < 20; step++) {
      const start = below(50);
      const end = start + below(12);
      const adds = below(3) > 0;
      if (adds) ranges.add(start, end);
      else ranges.remove(start, end);
      for (let i = start; i < end; i++) adds ? bytes.add(i) : bytes.delete(i);
      assertEquals(ranges.bytes, bytes.size);
      const missing = Array.from({ length: 70 }, (_, i) => i).find((i) => !bytes.has(i));
      assertEquals(ranges.gap(0, 70)?.[0], missing);
      for (const [i, [from]] of ranges.pairs.entries()) {
        if (i > 0) assertEquals(from > ranges.pairs[i - 1][1], true);
      }
    }
  }
});
