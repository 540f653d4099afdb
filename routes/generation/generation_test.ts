import { assert, assertEquals, assertRejects } from "@std/assert";
import type { Engine, Usage } from "../../engine/mod.ts";
import { pausesOf } from "../../engine/pacing/testing.ts";
import { ApiError } from "../core/errors.ts";
import { checkTokens, usageOf } from "./generation.ts";
import { toMessages } from "./messages.ts";

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

Deno.test("checkTokens: checks a long prompt in pieces, and names the first wrong id", async () => {
  const engine = { tokenizer: { vocabSize: 100 } } as Engine;
  const ids = new Array(500_000).fill(99);
  const { pauses } = await pausesOf(() => checkTokens(engine, ids, "prompt"));
  assert(pauses >= 30, `${pauses}`);
  const wrong = () => checkTokens(engine, [...ids, 100, 200], "prompt");
  await assertRejects(() => pausesOf(wrong), ApiError, "must be from 0 to 99 (got 100)");
});

Deno.test("toMessages: prepares many messages in pieces", async () => {
  const messages = Array.from({ length: 10_000 }, (_, i) => ({ role: "user" as const, content: `${i}` }));
  const { result, pauses } = await pausesOf(() => toMessages(messages));
  assertEquals(result.map(({ content }) => content), messages.map(({ content }) => content));
  assert(pauses >= 300, `${pauses}`);
});
