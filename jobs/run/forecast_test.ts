import { assert, assertEquals } from "@std/assert";
import type { Engine, GenerateRequest } from "../../engine/mod.ts";
import { type ExecuteWith, forecastSeconds, measureLines, Sample, TokenCounter } from "./forecast.ts";

/** A fake engine: each character is a token, and nothing is computed. */
class FakeEngine {
  readonly model = { contextLength: 10 };
  #stats = { promptTokens: 0, generatedTokens: 0, cachedTokens: 0 };

  encodePrompt(text: string): number[] {
    return [...text].map(() => 1);
  }

  stats() {
    return { ...this.#stats };
  }

  submit({ prompt, maxTokens = 5 }: GenerateRequest) {
    this.#stats.promptTokens += prompt.length;
    this.#stats.cachedTokens += 1;
    this.#stats.generatedTokens += maxTokens;
    return [maxTokens];
  }
}

const engine = new FakeEngine() as unknown as Engine;

/** Turns errors into a status, as an endpoint does. */
const execute: ExecuteWith = async (engine, { body: { prompt, max_tokens, n = 1 } }) => {
  try {
    if (typeof prompt !== "string") throw new Error("No prompt");
    const tokens = engine.encodePrompt(prompt);
    let output = 0;
    for (let i = 0; i < (n as number); i++) {
      for await (const count of engine.submit({ prompt: tokens, maxTokens: max_tokens as number })) {
        output += count as unknown as number;
      }
    }
    return { status: 200, body: { usage: { prompt_tokens: tokens.length, completion_tokens: output } } };
  } catch (error) {
    return { status: 400, body: { error: { code: "bad", message: (error as Error).message } } };
  }
};

function request(body: Record<string, unknown>) {
  return { customId: "a", url: "/v1/completions", body };
}

Deno.test("dry run: the endpoint counts prompt and answer tokens without running the model", async () => {
  const counter = new TokenCounter(engine, execute);
  const count = (body: Record<string, unknown>) => counter.tokensOf(request(body));
  const before = engine.stats();
  assertEquals(await count({ prompt: "abc", max_tokens: 4 }), { prompt: 3, answer: 4 });
  assertEquals(await count({ prompt: "abc" }), { prompt: 3, answer: 7 });
  assertEquals(await count({ prompt: "abcdefgh", max_tokens: 4 }), { prompt: 8, answer: 2 });
  assertEquals(engine.stats(), before);
});

Deno.test("dry run: reports refused requests and prompts that do not fit", async () => {
  const counter = new TokenCounter(engine, execute);
  const count = (body: Record<string, unknown>) => counter.tokensOf(request(body));
  assertEquals(await count({}), { code: "bad", message: "No prompt" });
  const full = await count({ prompt: "0123456789", max_tokens: 1 });
  assert("code" in full && full.code === "context_length_exceeded", JSON.stringify(full));
  assertEquals(await count({ prompt: "0123456789", max_tokens: 0 }), { prompt: 10, answer: 0 });
  assert("code" in await count({ prompt: "0123456789a", max_tokens: 0 }));
  // A refusal does not carry over to the next line.
  assertEquals(await count({ prompt: "a", max_tokens: 1 }), { prompt: 1, answer: 1 });
});

Deno.test("dry run: speed is measured by the tokens that the engine really computed", async () => {
  const lines = Array.from({ length: 7 }, () => ({
    request: request({ prompt: "abcde", max_tokens: 2 }),
    tokens: { prompt: 5, answer: 2 },
  }));
  const slow: ExecuteWith = async (engine, request) => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    return await execute(engine, request);
  };
  const measured = await measureLines(engine, slow, lines, 3, new AbortController().signal);
  assertEquals([measured.lines, measured.unfinished, measured.outputPerLine], [7, 0, 2]);
  assertEquals(measured.cachedShare, 1 / 5);
  assert(measured.seconds >= 0.06, `${measured.seconds}`);
  assertEquals(Math.round(measured.outputRate * measured.seconds), 14);
  assertEquals(Math.round(measured.promptRate * measured.seconds), 28);
  const twice = forecastSeconds(14, 70, measured);
  assert(Math.abs(twice / (2 * measured.seconds) - 1) < 1e-6, `${twice}`);
});

Deno.test("dry run: samples lines from the whole input, and the same lines each time", () => {
  const take = () => {
    const sample = new Sample<number>(100);
    for (let n = 0; n < 10_000; n++) sample.add(n);
    return sample.chosen;
  };
  assertEquals(take(), take());
  const quarters = [0, 0, 0, 0];
  for (const n of take()) quarters[Math.floor(n / 2500)] += 1;
  assert(quarters.every((count) => count > 10), `${quarters}`);
});
