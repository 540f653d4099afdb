import { assertEquals } from "@std/assert";
import { findNan } from "./planes.ts";

Deno.test("planes: a scale that stands for NaN is found with its row and column", () => {
  const rows = new Uint8Array(17 * 2 * 3).fill(120);
  assertEquals(findNan("MXFP4", rows, 64), undefined);
  rows[17 * (2 * 2 + 1)] = 255;
  assertEquals(findNan("MXFP4", rows, 64), [2, 32]);
  assertEquals(findNan("Q8_0", rows, 32), undefined);
});
