import { assertEquals } from "@std/assert";
import { Metrics } from "./metrics.ts";
import { RequestRecord } from "./request_record.ts";

Deno.test("request log: counts a prompt's tokens as cached only if all its answers found them in the cache", () => {
  const record = new RequestRecord(new Metrics());
  const [prompt, other] = [[1, 2, 3, 4], [5, 6]];
  const answers = [[prompt, 3], [prompt, 0], [other, 1]] as const;
  for (const [prompt, cachedTokens] of answers) {
    record.watch("demo", { prompt }).event({
      type: "finish",
      reason: "stop",
      text: "",
      usage: { promptTokens: prompt.length, completionTokens: 2, cachedTokens },
      timings: { queueMs: 0, prefillMs: 0, decodeMs: 0 },
    });
  }
  const head = { id: "1", method: "POST", route: "/v1/completions", status: 200 };
  const { prompt_tokens, completion_tokens, cached_tokens } = record.entry(head, false);
  assertEquals([prompt_tokens, completion_tokens, cached_tokens], [6, 6, 1]);
});
