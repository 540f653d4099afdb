import { assertEquals } from "@std/assert";
import { chosen } from "./choose.ts";

Deno.test("auto: chooses the GPU when a prompt and an answer are faster on the GPU, and gives the reason in one line", () => {
  const cpu = { token: 4, row: 1 };
  const slow = chosen(cpu, { token: 3.9, row: 1.1 }, 4, "a slow GPU");
  assertEquals(slow, {
    faster: "cpu",
    choice:
      "auto: a prompt of 512 tokens and 128 more through 4 layers take 1024 ms on the CPU (1.00 ms a row of a prompt " +
      "and 4.00 ms a token), 1062 ms on a slow GPU (1.10 ms a row of a prompt and 3.90 ms a token)",
  });
  // Backends of which the GPU is slower to decode, but much faster with prompts.
  assertEquals(chosen(cpu, { token: 6, row: 0.1 }, 4, "a GPU").faster, "webgpu");
  assertEquals(chosen(cpu, cpu, 4, "a GPU").faster, "cpu");
});
