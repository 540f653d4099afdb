import { assertEquals } from "@std/assert";
import { FakeEngine } from "../../testing.ts";
import { ResponseWriter } from "./writer.ts";

Deno.test("ResponseWriter: reports the stored tokens of a prompt without an answer", () => {
  const writer = new ResponseWriter(new FakeEngine(), {
    settings: {} as never,
    logprobs: false,
    summary: false,
    tools: new Map(),
  });
  const usage = {
    promptTokens: 9,
    completionTokens: 0,
    cachedTokens: 4,
    stored: { tokens: 8, cache: "a place" },
  };
  const timings = { queueMs: 0, prefillMs: 1, decodeMs: 1 };
  const events = [...writer.write({ type: "finish", index: 0, reason: "length", usage, timings })];
  assertEquals(events.map(({ type }) => type), [
    "response.created",
    "response.in_progress",
    "response.incomplete",
  ]);
  assertEquals(writer.response.usage, {
    input_tokens: 9,
    input_tokens_details: {
      cached_tokens: 4,
      cache_write_tokens: 0,
      stored_tokens: 8,
      stored_in: "a place",
    },
    output_tokens: 0,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 9,
  });
});
