import { assertEquals } from "@std/assert";
import { findNan, packPlanes, planeRowBytes } from "./planes.ts";

Deno.test("weight planes: a 4-byte word of MXFP4's scales has the scales of two successive block pairs", () => {
  const [columns, blocks] = [32 * 43, 43];
  const file = new Uint8Array(2 * 17 * blocks);
  for (let b = 0; b < 2 * blocks; b++) file[17 * b] = 100 + b;
  const scales = packPlanes("MXFP4", file, 2, columns)[1];
  assertEquals([planeRowBytes("MXFP4", columns)[1], scales.length], [64, 128]);
  const word = (row: number, i: number) => [...scales.subarray(64 * row + 4 * i, 64 * row + 4 * i + 4)];
  // Strand 0 has pairs 0 and 8, strand 7 has pairs 7 and 15. Then pair 16, which has no partner, and the only
  // block of pair 21.
  assertEquals([word(0, 0), word(0, 7)], [[100, 101, 116, 117], [114, 115, 130, 131]]);
  assertEquals([word(0, 8), word(0, 13), word(0, 14)], [[132, 133, 0, 0], [142, 0, 0, 0], [0, 0, 0, 0]]);
  assertEquals(word(1, 0), [143, 144, 159, 160]);
});

Deno.test("NaN scales: the search returns the row and column of a NaN scale", () => {
  const rows = new Uint8Array(17 * 2 * 3).fill(120);
  assertEquals(findNan("MXFP4", rows, 64), undefined);
  rows[17 * (2 * 2 + 1)] = 255;
  assertEquals(findNan("MXFP4", rows, 64), [2, 32]);
  assertEquals(findNan("Q8_0", rows, 32), undefined);
});
