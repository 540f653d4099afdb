import { assert, assertAlmostEquals, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { KV_BLOCK_TOKENS } from "../backend/backend.ts";
import {
  collect,
  EOS,
  expectedTokens,
  FAKE_VOCABULARY,
  fakeGreedy,
  fakeLogits,
  generate,
  GREEDY,
  promptOf,
  startEngine,
} from "../../testing/engine.ts";
import { EngineError } from "../api/errors.ts";
import type { GenerateRequest } from "../api/request.ts";

function logSoftmax(logits: Float32Array): number[] {
  const sum = logits.reduce((total, logit) => total + Math.exp(logit), 0);
  return Array.from(logits, (logit) => logit - Math.log(sum));
}

Deno.test("engine: greedy answers match the model for prompts of one token, whole blocks and many steps", async () => {
  const { engine } = startEngine();
  for (const length of [1, 2, 31, 32, 33, 63, 64, 65, 200, 500]) {
    const prompt = promptOf(length, length);
    const { tokens, finish } = await generate(engine, { prompt, maxTokens: 70, sampling: GREEDY });
    assertEquals(tokens, expectedTokens(prompt, 70), `prompt of ${length}`);
    assertEquals(finish.reason, fakeGreedy(prompt, 70).includes(EOS) ? "stop" : "length");
    assertEquals(finish.usage.promptTokens, length);
    assertEquals(finish.usage.completionTokens, fakeGreedy(prompt, 70).length);
  }
  assertEquals(engine.stats().kvBlocksUsed, 0);
  await engine.close();
});

Deno.test("engine: sampled text depends on the seed, not on concurrent requests", async () => {
  const { engine } = startEngine();
  const request = { prompt: promptOf(40), maxTokens: 40, sampling: { seed: 11 } };
  const alone = await generate(engine, request);
  const crowd = await Promise.all([
    generate(engine, { ...request, sampling: { seed: 12 } }),
    generate(engine, request),
    generate(engine, { ...request, prompt: promptOf(90, 5) }),
    generate(engine, { ...request, priority: "batch" }),
  ]);
  assertEquals(crowd[1].tokens, alone.tokens);
  assertEquals(crowd[3].tokens, alone.tokens);
  assert(crowd[0].tokens.join() !== alone.tokens.join());
  await engine.close();
});

Deno.test("prefix cache: concurrent requests compute a common prefix once", async () => {
  const { engine, backend } = startEngine({ parallel: 16, maxLogitRows: 16, kvBlocks: 200 });
  const prefix = promptOf(150, 3);
  const prompts = Array.from({ length: 16 }, (_, i) => [...prefix, ...promptOf(5, i)]);
  const results = await Promise.all(
    prompts.map((prompt) => generate(engine, { prompt, maxTokens: 1, sampling: GREEDY, priority: "batch" })),
  );
  results.forEach(({ tokens }, i) => assertEquals(tokens, expectedTokens(prompts[i], 1)));
  const whole = Math.floor(150 / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS;
  assertEquals(backend.rows, whole + 16 * (155 - whole));
  assertEquals(
    results.map(({ finish }) => finish.usage.cachedTokens).sort(),
    [0, ...new Array(15).fill(whole)].sort(),
  );
  assertEquals(engine.stats().cachedTokens, 15 * whole);
  await engine.close();
});

Deno.test("prefix cache: never covers the whole prompt, and separates salts", async () => {
  const { engine, backend } = startEngine();
  const request = { prompt: promptOf(64), maxTokens: 1, sampling: GREEDY };
  const first = await generate(engine, request);
  const again = await generate(engine, request);
  assertEquals(again.tokens, first.tokens);
  assertEquals(again.finish.usage.cachedTokens, 32);
  const salted = await generate(engine, { ...request, cacheSalt: "other" });
  assertEquals([salted.tokens, salted.finish.usage.cachedTokens], [first.tokens, 0]);
  assertEquals((await generate(engine, { ...request, cacheSalt: "other" })).finish.usage.cachedTokens, 32);
  assertEquals(backend.rows, 64 + 32 + 64 + 32);
  await engine.close();
});

Deno.test("prefix cache: a conversation reuses the blocks of an earlier answer", async () => {
  const { engine } = startEngine();
  const prompt = promptOf(40, 8);
  const { tokens } = await generate(engine, { prompt, maxTokens: 60, ignoreEos: true, sampling: GREEDY });
  const next = [...prompt, ...tokens, ...promptOf(10, 9)];
  const { finish, tokens: answer } = await generate(engine, {
    prompt: next,
    maxTokens: 20,
    sampling: GREEDY,
  });
  assertEquals(finish.usage.cachedTokens, 96);
  assertEquals(answer, expectedTokens(next, 20));
  await engine.close();
});

Deno.test("maxTokens: 0 only computes the prompt", async () => {
  const { engine, backend } = startEngine();
  const { events, finish } = await generate(engine, { prompt: promptOf(50), maxTokens: 0 });
  assertEquals([events.length, finish.reason, finish.usage.completionTokens], [1, "length", 0]);
  assertEquals(backend.logitRequests.flat(), []);
  const warm = await generate(engine, { prompt: promptOf(50), maxTokens: 3, sampling: GREEDY });
  assertEquals(warm.finish.usage.cachedTokens, 32);
  assertEquals(warm.tokens, expectedTokens(promptOf(50), 3));
  await engine.close();
});

Deno.test("maxTokens: by default the answer ends when the context is full", async () => {
  const { engine } = startEngine({}, 100);
  const { finish, tokens } = await generate(engine, { prompt: promptOf(60), ignoreEos: true });
  assertEquals([finish.reason, tokens.length], ["length", 40]);
  const capped = await generate(engine, { prompt: promptOf(99), maxTokens: 5000, ignoreEos: true });
  assertEquals([capped.finish.reason, capped.tokens.length], ["length", 1]);
  const exact = await generate(engine, { prompt: promptOf(100), maxTokens: 0 });
  assertEquals(exact.finish.reason, "length");
  await engine.close();
});

Deno.test("submit: refuses a prompt that can never fit, and the message states both lengths", async () => {
  const { engine, backend } = startEngine({ kvBlocks: 3 }, 1024);
  for (const [length, maxTokens] of [[96, undefined], [97, 0], [5000, 1]]) {
    const refused = await assertRejects(() =>
      collect(engine.submit({ prompt: promptOf(length!), maxTokens }))
    );
    assert(refused instanceof EngineError);
    assertEquals(refused.code, "context_length_exceeded");
    assertEquals(refused.details, { n_prompt_tokens: length!, n_ctx: 96 });
  }
  assertEquals((await generate(engine, { prompt: promptOf(95), ignoreEos: true })).tokens.length, 1);
  assertEquals(backend.rows, 95);
  await engine.close();
});

Deno.test("submit: refuses invalid requests, and the message states the reason", async () => {
  const { engine } = startEngine();
  const bad: [Partial<GenerateRequest>, string][] = [
    [{ prompt: [] }, "Invalid prompt: must have at least one token (got none)"],
    [
      { prompt: [1, FAKE_VOCABULARY] },
      "Invalid prompt: tokens must be whole numbers from 0 to 257 (got 258)",
    ],
    [{ prompt: [1.5] }, "Invalid prompt: tokens must be whole numbers from 0 to 257 (got 1.5)"],
    [{ maxTokens: -1 }, "Invalid maxTokens: must be a whole number, 0 or more (got -1)"],
    [{ logprobs: 21 }, "Invalid logprobs: must be a whole number from 0 to 20 (got 21)"],
    [{ stop: [""] }, 'Invalid stop: must be well-formed text, not empty (got "")'],
    [{ stop: ["\ude00"] }, 'Invalid stop: must be well-formed text, not empty (got "\\ude00")'],
    [{ sampling: { temperature: NaN } }, "Invalid temperature: must be 0 or more (got NaN)"],
    [{ sampling: { topP: 1.1 } }, "Invalid topP: must be from 0 to 1 (got 1.1)"],
    [{ sampling: { topK: -1 } }, "Invalid topK: must be a whole number, 0 or more (got -1)"],
    [{ sampling: { repetitionPenalty: 0 } }, "Invalid repetitionPenalty: must be more than 0 (got 0)"],
    [{ sampling: { seed: 0.5 } }, "Invalid seed: must be a whole number up to 2^53 - 1 (got 0.5)"],
    [
      { sampling: { logitBias: new Map([[-1, 0]]) } },
      "Invalid logitBias: tokens must be whole numbers from 0 to 257 (got -1)",
    ],
    [
      { sampling: { logitBias: new Map([[1, Infinity]]) } },
      "Invalid logitBias: values must be finite numbers (got Infinity)",
    ],
  ];
  for (const [changes, message] of bad) {
    const refused = await assertRejects(
      () => collect(engine.submit({ prompt: [1], ...changes })),
      EngineError,
    );
    assertEquals([refused.code, refused.message], ["invalid_request", message]);
  }
  assertEquals(engine.stats().steps, 0);
  await engine.close();
});

Deno.test("sampling: undefined fields mean the defaults", async () => {
  const { engine } = startEngine();
  const sampling = { seed: 5, topK: undefined, temperature: undefined };
  const { tokens } = await generate(engine, { prompt: promptOf(9), maxTokens: 9, sampling });
  assertEquals(
    tokens,
    (await generate(engine, { prompt: promptOf(9), maxTokens: 9, sampling: { seed: 5 } })).tokens,
  );
  await engine.close();
});

Deno.test("end token: ends the answer and is counted, but not published", async () => {
  const { engine } = startEngine();
  const { events, finish, tokens } = await generate(engine, { prompt: promptOf(33, 4), sampling: GREEDY });
  const whole = fakeGreedy(promptOf(33, 4), 900);
  assertEquals(whole.at(-1), EOS);
  assertEquals(tokens, whole.slice(0, -1));
  assertEquals([finish.reason, finish.usage.completionTokens], ["stop", whole.length]);
  assert(events.every((event) => event.type === "token" || event.type === "finish"));
  const past = await generate(engine, {
    prompt: promptOf(33, 4),
    maxTokens: 100,
    ignoreEos: true,
    sampling: GREEDY,
  });
  assertEquals(past.tokens.slice(0, whole.length), whole);
  assertEquals(past.tokens.length, 100);
  await engine.close();
});

Deno.test("progress: a prompt of several steps, or with a cached beginning, reports its progress", async () => {
  const { engine } = startEngine({ maxRows: 64 });
  const { events } = await generate(engine, { prompt: promptOf(150), maxTokens: 1, ignoreEos: true });
  const progress = events.filter((event) => event.type === "progress");
  assertEquals(progress.map(({ processed }) => processed), [64, 128, 150]);
  assertEquals(progress.map(({ total, cached }) => [total, cached]), new Array(3).fill([150, 0]));
  const again = await generate(engine, {
    prompt: [...promptOf(150), ...promptOf(80, 1)],
    maxTokens: 1,
    ignoreEos: true,
  });
  const second = again.events.filter((event) => event.type === "progress");
  assertEquals(second.map(({ processed, cached }) => [processed, cached]), [[192, 128], [230, 128]]);
  // The rest of a prompt whose beginning is cached fits into one step, and its progress still says how much is cached.
  const cached = await generate(engine, { prompt: promptOf(150), maxTokens: 1, ignoreEos: true });
  const third = cached.events.filter((event) => event.type === "progress");
  assertEquals(third.map(({ processed, cached }) => [processed, cached]), [[150, 128]]);
  const short = await generate(engine, { prompt: promptOf(64, 7), maxTokens: 1, ignoreEos: true });
  assertEquals(short.events.map(({ type }) => type), ["token", "finish"]);
  await engine.close();
});

Deno.test("stop: stop strings end the answer, and the streamed text ends before them", async () => {
  const { engine } = startEngine();
  const request = { prompt: promptOf(20, 2), maxTokens: 80, ignoreEos: true, sampling: GREEDY };
  const { text } = await generate(engine, request);
  for (const [from, length] of [[3, 1], [10, 2], [20, 5], [0, 1]]) {
    const stop = [...text].slice(from, from + length).join("");
    const stopped = await generate(engine, { ...request, stop: ["never in it", stop] });
    assertEquals(stopped.text, text.slice(0, text.indexOf(stop)));
    assertEquals([stopped.finish.reason, stopped.finish.stop], ["stop", stop]);
  }
  const unstopped = await generate(engine, { ...request, stop: [text + "!"] });
  assertEquals(unstopped.finish.stop, undefined);
  assertEquals([unstopped.text, unstopped.finish.text, unstopped.finish.reason], [text, text, "length"]);
  await engine.close();
});

Deno.test("finish: an incomplete character at the end of an answer is returned as U+FFFD, unless U+FFFD is a stop string", async () => {
  const { engine } = startEngine();
  const sampling = { ...GREEDY, logitBias: new Map([[0xf0, 100]]) };
  const request = { prompt: promptOf(5), maxTokens: 1, sampling };
  const cut = await generate(engine, request);
  assertEquals([cut.finish.text, cut.finish.reason, cut.text], ["\ufffd", "length", "\ufffd"]);
  const stopped = await generate(engine, { ...request, stop: ["\ufffd"] });
  assertEquals([stopped.finish.reason, stopped.finish.stop, stopped.text], ["stop", "\ufffd", ""]);
  await engine.close();
});

Deno.test("slots: report each running sequence's progress, and are empty when all have ended", async () => {
  const { engine } = startEngine({ parallel: 3 });
  assertEquals(engine.slots(), [undefined, undefined, undefined]);
  const first = engine.submit({ prompt: promptOf(40), maxTokens: 9, ignoreEos: true })
    [Symbol.asyncIterator]();
  await first.next();
  const [running, ...free] = engine.slots();
  assertEquals(free, [undefined, undefined]);
  assertEquals([running!.promptTokens, running!.maxTokens], [40, 9]);
  assert(running!.generatedTokens >= 1 && running!.cachedTokens >= 40, JSON.stringify(running));
  const others = Array.from({ length: 5 }, () => generate(engine, { prompt: promptOf(50), maxTokens: 2 }));
  while ((await first.next()).value?.type !== "finish");
  await Promise.all(others);
  assertEquals(engine.slots(), [undefined, undefined, undefined]);
  await engine.close();
});

Deno.test("DRY: ends a repetition of prompt or answer", async () => {
  const { engine } = startEngine();
  const logitBias = new Map([[65, 100]]);
  const request = { prompt: promptOf(5), maxTokens: 12, ignoreEos: true, sampling: { ...GREEDY, logitBias } };
  const dry = { dryMultiplier: 60, dryBase: 2, dryAllowedLength: 2 };
  const [free, bound, prompted] = await Promise.all([
    generate(engine, request),
    generate(engine, { ...request, sampling: { ...request.sampling, ...dry } }),
    generate(engine, { ...request, prompt: [66, 65, 65, 65, 65], sampling: { ...request.sampling, ...dry } }),
  ]);
  assertEquals(free.tokens, new Array(12).fill(65));
  // "AAA" repeats "A" after "A". Each further token makes the match one longer and doubles the penalty.
  assertEquals(bound.tokens.slice(0, 4), [65, 65, 65, 65]);
  assert(bound.tokens[4] !== 65, bound.tokens.join());
  assert(prompted.tokens[0] !== 65, prompted.tokens.join());
  await engine.close();
});

Deno.test("logprobs: are computed from the raw logits for all sampling options", async () => {
  const { engine } = startEngine();
  const prompt = promptOf(30);
  const logitBias = new Map([[65, 100]]);
  for (
    const sampling of [GREEDY, { seed: 1 }, { ...GREEDY, logitBias }, { ...GREEDY, repetitionPenalty: 1.5 }]
  ) {
    const { events } = await generate(engine, {
      prompt,
      maxTokens: 10,
      ignoreEos: true,
      sampling,
      logprobs: 5,
    });
    const history = [...prompt];
    for (const event of events) {
      if (event.type !== "token") continue;
      const wanted = logSoftmax(fakeLogits(history));
      assertAlmostEquals(event.logprob!, wanted[event.token], 1e-5);
      const best = [...wanted.keys()].sort((a, b) => wanted[b] - wanted[a]).slice(0, 5);
      assertEquals(event.top!.map(({ token }) => token), best);
      event.top!.forEach(({ token, logprob }) => assertAlmostEquals(logprob, wanted[token], 1e-5));
      history.push(event.token);
    }
  }
  const none = await generate(engine, { prompt, maxTokens: 2, ignoreEos: true, logprobs: 0 });
  assert(
    none.events.every((event) => event.type !== "token" || (event.top!.length === 0 && event.logprob! < 0)),
  );
  await engine.close();
});

Deno.test("logprobs: prompt log-probabilities arrive before the first token, even with few rows per step", async () => {
  for (const limits of [{}, { maxRows: 7 }, { maxLogitRows: 1 }, { maxLogitRows: 3, maxRows: 5 }]) {
    const { engine } = startEngine(limits);
    for (const length of [1, 2, 33, 70]) {
      const prompt = promptOf(length, 6);
      for (const maxTokens of [0, 3]) {
        const request = {
          prompt,
          maxTokens,
          logprobs: 2,
          promptLogprobs: true,
          ignoreEos: true,
          sampling: GREEDY,
        };
        const { events, tokens, finish } = await generate(engine, request);
        const [event, ...others] = events.filter((event) => event.type !== "progress");
        if (event.type !== "prompt") throw new Error(`A ${event.type} came before the prompt`);
        assert(others.every((other) => other.type !== "prompt"));
        assertEquals(event.logprobs.map(({ token }) => token), prompt);
        assertEquals(event.logprobs[0], { token: prompt[0], logprob: null, top: [] });
        event.logprobs.slice(1).forEach(({ logprob, top }, i) => {
          const wanted = logSoftmax(fakeLogits(prompt.slice(0, i + 1)));
          assertAlmostEquals(logprob!, wanted[prompt[i + 1]], 1e-5);
          assertAlmostEquals(top[0].logprob, Math.max(...wanted), 1e-5);
          assertEquals(top.length, 2);
        });
        assertEquals(tokens.length, maxTokens);
        assertEquals(finish.usage.cachedTokens, 0);
      }
    }
    await engine.close();
  }
});

Deno.test("sampling: penalties and bias follow the API's definition", async () => {
  const { engine } = startEngine();
  const prompt = promptOf(50, 1);
  const sampling = {
    ...GREEDY,
    repetitionPenalty: 1.3,
    presencePenalty: 0.7,
    frequencyPenalty: 0.4,
    logitBias: new Map([[65, 2.5], [66, -100]]),
  };
  const { tokens } = await generate(engine, { prompt, maxTokens: 60, ignoreEos: true, sampling });
  const generated: number[] = [];
  for (const token of tokens) {
    const logits = fakeLogits([...prompt, ...generated]);
    for (const seen of new Set([...prompt, ...generated])) {
      logits[seen] = logits[seen] > 0 ? logits[seen] / 1.3 : logits[seen] * 1.3;
    }
    for (const seen of generated) logits[seen] -= 0.4;
    for (const seen of new Set(generated)) logits[seen] -= 0.7;
    for (const [biased, bias] of sampling.logitBias) logits[biased] += bias;
    assertAlmostEquals(logits[token], Math.max(...logits), 1e-5);
    generated.push(token);
  }
  await engine.close();
});

Deno.test("tokenizing: refuses a text far beyond the context before counting all its tokens", async () => {
  const { engine } = startEngine({}, 100);
  assertEquals(engine.encodePrompt("x".repeat(400)).length, 400);
  const long = "x".repeat(1_000_000);
  for (
    const encode of [
      () => engine.encodePrompt(long),
      () => engine.encodeChat([{ role: "user", content: long }]),
    ]
  ) {
    const refused = assertThrows(encode, EngineError, "at least 401 tokens");
    assertEquals([refused.code, refused.details.n_ctx], ["context_length_exceeded", 100]);
  }
  await engine.close();
});

Deno.test("embed: refuses texts with advice when the backend does not support pooling", async () => {
  const { engine } = startEngine();
  const { code, message } = await assertRejects(() => engine.embed({ inputs: [[1]] }), EngineError);
  assertEquals([code, message.includes('backend: "cpu"')], ["not_supported", true]);
});

Deno.test("engine: runs a request that arrives just as its loop ends", async () => {
  const { engine } = startEngine();
  const request = (seed: number): GenerateRequest => (
    { prompt: promptOf(3, seed), maxTokens: 1, sampling: GREEDY, ignoreEos: true }
  );
  // The loop ends a few microtasks after an answer's last token, so the test sends a request in each of the
  // microtasks.
  for (let microtasks = 0; microtasks < 24; microtasks++) {
    await engine.submit(request(microtasks))[Symbol.asyncIterator]().next();
    for (let i = 0; i < microtasks; i++) await Promise.resolve();
    const late = AbortSignal.timeout(5000);
    const { finish } = await generate(engine, { ...request(100 + microtasks), signal: late });
    assertEquals(finish.reason, "length", `${microtasks} microtasks after an answer`);
  }
  await engine.close();
});
