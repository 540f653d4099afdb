import { assertEquals } from "@std/assert";
import { tokenCounts } from "./usage.ts";

Deno.test("tokenCounts: reads the usage of every endpoint", () => {
  const chat = { prompt_tokens: 9, completion_tokens: 4, prompt_tokens_details: { cached_tokens: 5 } };
  assertEquals(tokenCounts({ usage: chat }), { prompt: 9, cached: 5, output: 4, reasoning: 0 });
  const responses = { input_tokens: 9, output_tokens: 4, input_tokens_details: { cached_tokens: 5 } };
  assertEquals(tokenCounts({ usage: responses }), { prompt: 9, cached: 5, output: 4, reasoning: 0 });
  const messages = {
    input_tokens: 3,
    output_tokens: 4,
    cache_read_input_tokens: 5,
    cache_creation_input_tokens: 1,
  };
  assertEquals(tokenCounts({ usage: messages }), { prompt: 9, cached: 5, output: 4, reasoning: 0 });
  assertEquals(tokenCounts({ usage: { prompt_tokens: 9, total_tokens: 9 } }), {
    prompt: 9,
    cached: 0,
    output: 0,
    reasoning: 0,
  });
  const completion = { content: "hi", tokens_evaluated: 9, tokens_cached: 5, tokens_predicted: 4 };
  assertEquals(tokenCounts(completion), { prompt: 9, cached: 5, output: 4, reasoning: 0 });
});

Deno.test("tokenCounts: counts the reasoning tokens that each endpoint reports", () => {
  const written = { output: 4, reasoning: 3 };
  const usages = [
    { completion_tokens: 4, completion_tokens_details: { reasoning_tokens: 3 } },
    { output_tokens: 4, output_tokens_details: { reasoning_tokens: 3 } },
    { output_tokens: 4, output_tokens_details: { thinking_tokens: 3 } },
  ];
  for (const usage of usages) assertEquals(tokenCounts({ usage }), { prompt: 0, cached: 0, ...written });
});

Deno.test("tokenCounts: returns 0 for invalid counts", () => {
  for (const usage of [undefined, null, "9", { prompt_tokens: -1, completion_tokens: 2 ** 32 }]) {
    assertEquals(tokenCounts({ usage }), { prompt: 0, cached: 0, output: 0, reasoning: 0 });
    assertEquals(tokenCounts(usage), { prompt: 0, cached: 0, output: 0, reasoning: 0 });
  }
});
