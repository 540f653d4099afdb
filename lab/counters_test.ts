import { assertEquals, assertThrows } from "@std/assert";
import { parseCounts, parsePerf, perCall } from "./counters.ts";

const OUTPUT = `desc: I1 cache: 32768 B, 64 B, 8-way associative
cmd: bench calls
events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw
fl=somewhere
summary: 9000 1 1 500 40 7 300 2 3
`;

Deno.test("cachegrind: finds counts by the names of the events", () => {
  assertEquals(parseCounts(OUTPUT), { instructions: 9000, d1Misses: 42, llMisses: 10 });
  assertThrows(() => parseCounts("events: Ir\nsummary: 5\n"), Error, "did not count D1mr");
  assertThrows(() => parseCounts(""), Error, "no summary");
});

Deno.test("counts per call: exclude work that a process does once", () => {
  const few = { instructions: 1000 + 50, d1Misses: 100 + 5, llMisses: 7 };
  const many = { instructions: 1000 + 250, d1Misses: 100 + 25, llMisses: 7 };
  assertEquals(perCall([1, 5], [few, many]), { instructions: 50, d1Misses: 5, llMisses: 0 });
});

Deno.test("perf: instructions per cycle are undefined when perf counts nothing", () => {
  assertEquals(parsePerf("300,,instructions:u,1,100.00,,\n200,,cycles:u,1,100.00,,\n"), 1.5);
  assertEquals(
    parsePerf("<not supported>,,instructions:u,0,100.00,,\n<not supported>,,cycles:u,0,100,,\n"),
    undefined,
  );
  assertEquals(parsePerf(""), undefined);
});
