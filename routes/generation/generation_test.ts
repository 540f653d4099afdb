import { assertEquals } from "@std/assert";
import type { Usage } from "../../engine/mod.ts";
import { usageOf } from "./generation.ts";

const usage = (promptTokens: number, cachedTokens: number): Usage => {
  return { promptTokens, cachedTokens, completionTokens: 3 };
};

Deno.test("usageOf: tokens that another answer to the same request computed do not count as cached", () => {
  for (const answers of [[usage(100, 96), usage(100, 0)], [usage(100, 0), usage(100, 96)]]) {
    const { prompt_tokens, completion_tokens, prompt_tokens_details } = usageOf(answers, 2);
    assertEquals([prompt_tokens, completion_tokens, prompt_tokens_details.cached_tokens], [100, 6, 0]);
  }
  const two = [usage(100, 64), usage(100, 96), usage(50, 48), usage(50, 32)];
  assertEquals(usageOf(two, 2).prompt_tokens_details.cached_tokens, 96);
  assertEquals(usageOf(two, 1).prompt_tokens_details.cached_tokens, 240);
});
