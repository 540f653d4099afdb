import { assert, assertEquals } from "@std/assert";
import { instructionSets } from "./machine.ts";

Deno.test("machine: reports which instruction sets the chosen backend can use", async () => {
  const native = await instructionSets("cpu");
  assertEquals(native.at(-1), "scalar");
  const wasm = await instructionSets("wasm");
  assertEquals(wasm.length, 1);
  assert(wasm[0].startsWith("wasm-"), wasm[0]);
});
