import { assertEquals } from "@std/assert";
import { once } from "./terminal.ts";

Deno.test("once: passes each message on once, and bounds what it remembers", () => {
  const told: string[] = [];
  const tell = once((message) => told.push(message));
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < 5000; i++) tell(`message ${i}`);
  }
  assertEquals(told.length, 1001);
  assertEquals(told.slice(0, 2), ["message 0", "message 1"]);
  assertEquals(told.at(-1), "There were too many different warnings; no others are shown");
});
