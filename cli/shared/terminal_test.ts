import { assertEquals } from "@std/assert";
import { once } from "./terminal.ts";

Deno.test("repeated messages: each message is passed on once, and a bounded number of messages is remembered", () => {
  const told: string[] = [];
  const tell = once((message) => told.push(message));
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < 5000; i++) tell(`message ${i}`);
  }
  assertEquals(told.length, 1001);
  assertEquals(told.slice(0, 2), ["message 0", "message 1"]);
  assertEquals(told.at(-1), "There were too many different warnings; no others are shown");
});
