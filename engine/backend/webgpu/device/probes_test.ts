import { assertEquals } from "@std/assert";
import { productError } from "./probes.ts";

Deno.test("product probe: compares each row with f64", () => {
  const values = new Float32Array(256 * 65).fill(0.5);
  const found = new Float32Array(values.length).fill(0.25 * 256);
  assertEquals(productError(values, found), 0);
  found[256 * 64] *= 1.5;
  assertEquals(productError(values, found), 0.5);
  found[256] = NaN;
  assertEquals(productError(values, found), NaN);
});
