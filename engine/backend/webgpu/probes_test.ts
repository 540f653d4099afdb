import { assertEquals } from "@std/assert";
import { productError, subgroupSize } from "./probes.ts";

/** What 64 lanes say, where lane i has a place in a subgroup of `size`. */
const lanes = (size: number, place: (i: number) => number) =>
  Uint32Array.from({ length: 64 }, (_, i) => place(i) | (size << 8) | (size << 16));

Deno.test("subgroups count whichever lanes they are made of", () => {
  assertEquals(subgroupSize(lanes(8, (i) => i % 8)), 8);
  assertEquals(subgroupSize(lanes(8, (i) => i >> 3)), 8);
  assertEquals(subgroupSize(lanes(64, (i) => 63 - i)), 64);
});

Deno.test("subgroups that contradict themselves do not count", () => {
  assertEquals(subgroupSize(new Uint32Array(64)), 0);
  assertEquals(subgroupSize(lanes(8, () => 0)), 0);
  assertEquals(subgroupSize(lanes(24, (i) => i % 24)), 0);
  const partial = lanes(8, (i) => i % 8);
  partial[9] = 1 | (7 << 8) | (8 << 16);
  assertEquals(subgroupSize(partial), 0);
});

Deno.test("products are compared row by row with those in f64", () => {
  const values = new Float32Array(256 * 65).fill(0.5);
  const found = new Float32Array(values.length).fill(0.25 * 256);
  assertEquals(productError(values, found), 0);
  found[256 * 64] *= 1.5;
  assertEquals(productError(values, found), 0.5);
  found[256] = NaN;
  assertEquals(productError(values, found), NaN);
});
