import { assert, assertEquals } from "@std/assert";
import { instructionSets } from "./machine.ts";

Deno.test("machine: returns the instruction sets of the chosen backend", async () => {
  const native = await instructionSets("cpu");
  assertEquals(native.at(-1), "scalar");
  const wasm = await instructionSets("wasm");
  assertEquals(wasm.length, 1);
  assert(wasm[0].startsWith("wasm-"), wasm[0]);
});
