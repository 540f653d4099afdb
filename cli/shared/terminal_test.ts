import { assertEquals } from "@std/assert";
import { once } from "./terminal.ts";

Deno.test("repeated messages: each message is passed on once a day, and a bounded number of messages is remembered", () => {
  const told: string[] = [];
  let time = 0;
  const tell = once((message) => told.push(message), () => time);
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < 5000; i++) tell(`message ${i}`);
  }
  assertEquals(told.length, 1001);
  assertEquals(told.slice(0, 2), ["message 0", "message 1"]);
  assertEquals(told.at(-1), "There were too many different warnings; no others are shown today");
  time = 86_400_001;
  for (let round = 0; round < 2; round++) tell("message 0");
  assertEquals(told.slice(1001), ["message 0"]);
});

Deno.test("repeated messages: a sender of many messages does not silence other senders", () => {
  const told: string[] = [];
  const tell = once((message) => told.push(message));
  for (let i = 0; i < 5000; i++) tell(`message ${i}`, "a");
  assertEquals(told.length, 51);
  assertEquals(
    told.at(-1),
    "There were too many different warnings about requests of a; no others are shown today",
  );
  tell("message 0", "b");
  tell("message b", "b");
  tell("message without a sender");
  assertEquals(told.slice(51), ["message b", "message without a sender"]);
});
