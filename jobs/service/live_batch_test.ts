import { assertEquals, assertThrows } from "@std/assert";
import { CountWriter } from "./live_batch.ts";

const counted = (completed: number) => ({
  total: 9,
  completed,
  failed: 0,
  promptTokens: 0,
  cachedTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
});

Deno.test("CountWriter: writes only the last counts per event-loop turn, and keeps counts in memory that cannot be written", async () => {
  const written: number[] = [];
  let isFull = false;
  const writer = new CountWriter(({ completed }) => {
    if (isFull) throw new Error("full");
    written.push(completed);
  });
  const turn = () => new Promise((resolve) => setTimeout(resolve, 5));
  for (let i = 0; i < 1000; i++) writer.set(counted(i));
  await turn();
  assertEquals(written, [999]);
  isFull = true;
  writer.set(counted(1000));
  await turn();
  assertThrows(() => writer.flush(), Error, "full");
  isFull = false;
  writer.flush();
  writer.flush();
  assertEquals(written, [999, 1000]);
});
