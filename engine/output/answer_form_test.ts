import { assert, assertEquals, assertRejects } from "@std/assert";
import { AnswerForm } from "./answer_form.ts";
import type { Constraint } from "../grammar/types.ts";
import type { Sequence } from "../schedule/sequence.ts";
import { TimeLimit } from "../sampling/time_limit.ts";
import { StepMasks } from "../sampling/step_masks.ts";
import { FakeGrammars } from "../../testing/grammars.ts";
import { EngineError } from "../api/errors.ts";
import type { GenerateRequest } from "../api/request.ts";
import {
  collect,
  EOS,
  finishOf,
  generate,
  GREEDY,
  promptOf,
  settle,
  startEngine,
  stepByStep,
  textOf,
  tokensOf,
} from "../../testing/engine.ts";

const form = (pattern: string): Constraint => ({ kind: "regex", pattern });
const bytes = (text: string) => [...new TextEncoder().encode(text)];
const PROMPT = promptOf(40);
const spell = (token: number) => Uint8Array.of(token);

/** Constraint for an object with forced keys and free values. */
const OBJECT = form('{"name": "....", "town": "......"}');
const OBJECT_TEXT = /^\{"name": "[a-z]{4}", "town": "[a-z]{6}"\}$/;

Deno.test("constraint: an answer matches its constraint and ends without an end token when it is complete", async () => {
  const { engine, backend, grammars } = startEngine();
  const { text, tokens, finish } = await generate(engine, { prompt: PROMPT, constraint: OBJECT });
  assert(OBJECT_TEXT.test(text), text);
  assertEquals([finish.reason, finish.usage.completionTokens], ["stop", tokens.length]);
  assertEquals(tokens, bytes(text));
  // Ten letters were sampled, one per step, the first after the prompt. All other tokens were forced.
  assertEquals(backend.steps.length, 10);
  const { generatedTokens, forcedTokens } = engine.stats();
  assertEquals([generatedTokens, forcedTokens], [tokens.length, tokens.length - 10]);
  assertEquals(grammars.open, 0);
  await engine.close();
  assert(grammars.closed);
});

Deno.test("constraint: forced tokens run in the next step, or with the prompt at the answer's start", async () => {
  const { engine, backend } = startEngine();
  await generate(engine, { prompt: PROMPT, constraint: form("<begin>.<middle>.<end>"), sampling: GREEDY });
  assertEquals(backend.steps.flat(), [
    { cached: 0, length: 40 + "<begin>".length },
    { cached: 47, length: 1 + "<middle>".length },
  ]);
  await engine.close();
});

Deno.test("constraint: forced tokens fill whole row tiles in large steps without changing answers", async () => {
  /** Returns the answers of concurrent requests, and the rows of each step after their prompts. */
  const crowd = async (forms: (string | undefined)[], wholeRows?: number) => {
    const { engine, backend } = startEngine({ parallel: 32, maxRows: 1024, kvBlocks: 300, wholeRows });
    const answers = await Promise.all(forms.map((pattern, i) =>
      generate(engine, {
        prompt: [100 + i, ...PROMPT],
        constraint: pattern === undefined ? undefined : form(pattern),
        maxTokens: 12,
        ignoreEos: true,
        sampling: { seed: i },
      })
    ));
    const { forcedTokens } = engine.stats();
    await engine.close();
    const answering = backend.steps.filter((step) => step.every(({ cached }) => cached > PROMPT.length));
    const rows = answering.map((step) => step.map(({ length }) => length));
    return { rows, forcedTokens, tokens: answers.map(({ tokens }) => tokens) };
  };
  const run = ".abcde.fg.";
  const free = (count: number) => Array.from({ length: count }, () => undefined);
  const [alone, few, many, finer, all] = await Promise.all([
    crowd([run]),
    crowd([run, ...free(7)]),
    crowd([run, ...free(15)]),
    crowd([run, ...free(15)], 4),
    crowd(Array.from({ length: 16 }, () => run)),
  ]);
  assertEquals(alone.rows, [[6], [3]]);
  assertEquals(few.rows.slice(0, 2).map((rows) => rows.toSorted().join("")), ["11111116", "11111113"]);
  assert(many.rows.every((rows) => rows.every((count) => count === 1)), JSON.stringify(many.rows));
  const [first, second] = finer.rows.map((rows) => rows.toSorted((a, b) => b - a));
  assertEquals([first, second[0]], [[5, ...new Array(15).fill(1)], 1]);
  assertEquals(all.rows.map((rows) => rows.reduce((sum, count) => sum + count)), [96, 48]);
  for (const { tokens, forcedTokens } of [few, many, finer]) {
    assertEquals([tokens[0], forcedTokens], [alone.tokens[0], 7]);
  }
  assertEquals([all.tokens[0], all.forcedTokens], [alone.tokens[0], 16 * 7]);
});

Deno.test("constraint: a fully forced answer is not sampled", async () => {
  const { engine, backend } = startEngine();
  const { text, finish } = await generate(engine, { prompt: PROMPT, constraint: form("just this") });
  assertEquals([text, finish.reason, finish.usage.completionTokens], ["just this", "stop", 9]);
  assertEquals(backend.logitRequests.flat(), []);
  await engine.close();
});

Deno.test("constraint: an answer that is cut off has the finish reason length", async () => {
  const { engine } = startEngine();
  for (const maxTokens of [0, 1, 8, 10, 14]) {
    const { text, finish } = await generate(engine, { prompt: PROMPT, constraint: OBJECT, maxTokens });
    assertEquals([finish.reason, text.length, finish.usage.completionTokens], [
      "length",
      maxTokens,
      maxTokens,
    ]);
  }
  const whole = await generate(engine, { prompt: PROMPT, constraint: form("{}"), maxTokens: 2 });
  assertEquals([whole.finish.reason, whole.text], ["stop", "{}"]);
  await engine.close();
});

Deno.test("constraint: an end token comes only where the answer may end", async () => {
  const { engine } = startEngine();
  const answer = (seed: number, more: Partial<GenerateRequest>) =>
    generate(engine, {
      prompt: PROMPT,
      constraint: form("a|ab|abc|abcd"),
      sampling: { seed, logitBias: new Map([[EOS, 24]]) },
      ...more,
    });
  const lengths = new Set<number>();
  for (let seed = 0; seed < 20; seed++) {
    const { text, finish } = await answer(seed, {});
    assert("abcd".startsWith(text) && text !== "", text);
    assertEquals(finish.reason, "stop");
    lengths.add(text.length);
  }
  assert(lengths.size > 1);
  // With a constraint, ignoreEos continues only while other tokens may follow.
  assertEquals((await answer(0, { ignoreEos: true })).text, "abcd");
  await engine.close();
});

Deno.test("constraint: biases, penalties, top-k and temperature choose among the allowed tokens", async () => {
  const { engine } = startEngine();
  const [a, b, z] = bytes("abz");
  const one = (sampling: GenerateRequest["sampling"]) =>
    generate(engine, { prompt: PROMPT, constraint: form("...."), sampling });
  assertEquals((await one({ logitBias: new Map([[z, 200], [EOS, 200]]), temperature: 0 })).text, "zzzz");
  const bias = new Map([[a, 100], [b, 85]]);
  assertEquals((await one({ logitBias: bias, temperature: 0 })).text[0], "a");
  const penalised = (await one({ logitBias: bias, temperature: 0, presencePenalty: 30 })).text;
  assertEquals(penalised.slice(0, 2), "ab");
  for (const topP of [0.01, 0.9]) {
    for (const topK of [0, 1, 5]) {
      const { text } = await one({ topP, topK, temperature: 2, seed: 3, minP: 0.01 });
      assert(/^[a-z]{4}$/.test(text), text);
    }
  }
  await engine.close();
});

Deno.test("constraint: after a stop text the finish reason is length, or stop where the answer may end", async () => {
  const { engine, grammars } = startEngine();
  const ask = (constraint: Constraint, stop: string, logprobs?: number) =>
    generate(engine, { prompt: PROMPT, constraint, stop: [stop], sampling: GREEDY, logprobs });
  for (const logprobs of [undefined, 1]) {
    const midst = await ask(OBJECT, '", "town', logprobs);
    assert(/^\{"name": "[a-z]{4}$/.test(midst.text), midst.text);
    assertEquals(midst.finish.reason, "length");
    const given = await ask(form("one two three"), " two", logprobs);
    assertEquals([given.text, given.finish.reason, given.finish.usage.completionTokens], [
      "one",
      "length",
      7,
    ]);
    const whole = await ask(form("one two three|one two"), " th", logprobs);
    assertEquals([whole.text, whole.finish.reason], ["one two", "stop"]);
    const cut = await ask(form("one two three|one tw"), "o th", logprobs);
    assertEquals([cut.text, cut.finish.reason], ["one tw", "stop"]);
  }
  assertEquals(grammars.open, 0);
  await engine.close();
});

Deno.test("logprobs: forced tokens get the same log-probabilities as when scored as a prompt", async () => {
  const { engine, backend } = startEngine({ maxLogitRows: 3 });
  const request: GenerateRequest = {
    prompt: PROMPT,
    constraint: form("<abc>..<def>."),
    logprobs: 2,
    sampling: { seed: 5 },
  };
  const { events, tokens, text } = await generate(engine, request);
  assert(/^<abc>[a-z]{2}<def>[a-z]$/.test(text), text);
  const given = events.filter((event) => event.type === "token");
  // The reference: the prompt with the answer, scored as a prompt.
  const scored = await collect(
    engine.submit({ prompt: [...PROMPT, ...tokens], maxTokens: 0, promptLogprobs: true, logprobs: 2 }),
  );
  const truth = scored.find((event) => event.type === "prompt")!.logprobs.slice(PROMPT.length);
  assertEquals(given.map(({ logprob }) => logprob), truth.map(({ logprob }) => logprob));
  const forced = [0, 1, 2, 3, 4, 7, 8, 9, 10, 11];
  for (const i of forced) {
    assertEquals(given[i].top, [{ token: tokens[i], logprob: given[i].logprob! }]);
  }
  assert(backend.logitRequests.every((requests) => requests.length <= 3));
  const plain = await generate(engine, { ...request, logprobs: undefined });
  assertEquals(plain.tokens, tokens);
  const both = await generate(engine, { ...request, promptLogprobs: true });
  assertEquals(both.events.filter(({ type }) => type === "token"), given);
  await engine.close();
});

Deno.test("stop texts: a stop text inside forced tokens gives the same answer with and without logprobs", async () => {
  const { engine } = startEngine();
  const request = {
    prompt: PROMPT,
    constraint: form(".one two three|.one "),
    stop: ["two"],
    sampling: GREEDY,
  } satisfies GenerateRequest;
  const plain = await generate(engine, request);
  const scored = await generate(engine, { ...request, logprobs: 0 });
  assertEquals(plain.text.slice(1), "one ");
  assertEquals([scored.text, scored.tokens], [plain.text, plain.tokens]);
  assertEquals(scored.finish.usage, {
    ...plain.finish.usage,
    cachedTokens: scored.finish.usage.cachedTokens,
  });
  await engine.close();
});

Deno.test("constraint: answers do not change with concurrency, chunking, streaming or preemption", async () => {
  const requests = Array.from({ length: 12 }, (_, i): GenerateRequest => ({
    prompt: promptOf(20 + 7 * i, i % 5),
    constraint: i % 3 === 2
      ? undefined
      : form(i % 3 ? `{"some key ${i}": "......", "b": ".."}` : "yes|no|maybe so"),
    maxTokens: 60,
    logprobs: i % 4 === 0 ? 1 : undefined,
    promptLogprobs: i % 8 === 0,
    sampling: { seed: i, ...i % 2 ? { frequencyPenalty: 0.5 } : {} },
    priority: i % 2 ? "batch" : "interactive",
    thinking: i % 6 === 4
      ? { open: true, anywhere: true, begin: [1], end: bytes("}"), budget: 30 }
      : undefined,
  }));
  const alone = startEngine();
  const truth = [];
  for (const request of requests) truth.push(await generate(alone.engine, { ...request, cacheSalt: "x" }));
  await alone.engine.close();
  for (const seed of [1, 2, 3]) {
    for (const stateSlots of [undefined, 9]) {
      const limits = { parallel: 5, kvBlocks: 12 + seed, maxRows: 7 * seed, maxLogitRows: 5, stateSlots };
      const { engine, grammars } = startEngine(limits, 320);
      const all = await Promise.all(requests.map((request) => generate(engine, request)));
      for (const [i, { text, tokens, finish }] of all.entries()) {
        assertEquals(
          [text, tokens, finish.reason],
          [truth[i].text, truth[i].tokens, truth[i].finish.reason],
          `${i}`,
        );
        assertEquals(finish.usage.completionTokens, truth[i].finish.usage.completionTokens);
        assertEquals(
          all[i].events.filter(({ type }) => type === "token"),
          truth[i].events.filter(({ type }) => type === "token"),
        );
      }
      if (seed === 1) assert(engine.stats().preemptions > 0);
      assertEquals([grammars.open, engine.stats().kvBlocksUsed], [0, 0]);
      await engine.close();
    }
  }
});

Deno.test("masks: all masks of a step are computed together while it runs, and only if needed", async () => {
  const { engine, backend, grammars } = startEngine();
  const steps = stepByStep(backend);
  const asked = [1, 2, 3].map((i) =>
    generate(engine, { prompt: promptOf(20, i), constraint: i < 3 ? form("....") : undefined, maxTokens: 4 })
  );
  await settle();
  await steps.next();
  assertEquals([backend.steps.length, grammars.batches], [2, [2]]);
  steps.release();
  await Promise.all(asked);
  assertEquals(grammars.batches, [2, 2, 2, 2]);
  await generate(engine, { prompt: PROMPT, maxTokens: 3 });
  assertEquals(grammars.batches.length, 4);
  await engine.close();
});

Deno.test("constraint: an invalid constraint is refused before anything runs", async () => {
  const { engine, backend } = startEngine();
  const request: GenerateRequest = { prompt: PROMPT, constraint: { kind: "lark", grammar: "start: x" } };
  const error = await assertRejects(() => collect(engine.submit(request)), EngineError);
  assertEquals(error.code, "invalid_constraint");
  assertEquals([backend.steps.length, engine.stats().waiting], [0, 0]);
  await engine.close();
});

Deno.test("masks: a failing mask ends only its own sequence, and the error is constraint_failed", async () => {
  const { engine, grammars } = startEngine();
  let failing = true;
  grammars.maskGate = () => failing ? Promise.reject(new Error("out of fuel")) : Promise.resolve();
  const free = generate(engine, { prompt: promptOf(30, 1), maxTokens: 5, sampling: GREEDY });
  const error = await assertRejects(
    () => collect(engine.submit({ prompt: PROMPT, constraint: form("a....") })),
    EngineError,
    "out of fuel",
  );
  assertEquals(error.code, "constraint_failed");
  assertEquals((await free).finish.reason, "length");
  failing = false;
  assertEquals((await generate(engine, { prompt: PROMPT, constraint: form("ab.") })).text.length, 3);
  assertEquals(grammars.open, 0);
  await engine.close();
});

Deno.test("masks: a mask that never arrives ends its sequence, and the step finishes without the mask", async () => {
  const grammars = new FakeGrammars({ vocabSize: 258, ends: [EOS] });
  const gate = Promise.withResolvers<void>();
  grammars.maskGate = () => gate.promise;
  const bound = new AnswerForm(await grammars.compile(form("a....")), undefined, spell);
  const sequence = { form: bound, ignoreEos: false } as Sequence;
  const part = { sequence, rows: 1, scores: 0, samples: true, drafts: new Int32Array(0), pools: false };
  const patience = new TimeLimit(20);
  const masks = new StepMasks(grammars, [part], 258, new Set([EOS]), patience);
  assertEquals([...await masks.get(sequence)!], Array(9).fill(0xffffffff));
  assertEquals(masks.resultOf(sequence), { failure: "no mask was computed within 0.02 s" });
  bound.close();
  assertEquals(grammars.open, 1);
  gate.resolve();
  await settle();
  assertEquals(grammars.open, 0);
  patience.close();
});

Deno.test("masks: time in which the process is stopped does not count towards the timeout", async () => {
  const grammars = new FakeGrammars({ vocabSize: 258, ends: [EOS] });
  const gate = Promise.withResolvers<void>();
  grammars.maskGate = () => gate.promise;
  const bound = new AnswerForm(await grammars.compile(form("a....")), undefined, spell);
  const sequence = { form: bound, ignoreEos: false } as Sequence;
  const part = { sequence, rows: 1, scores: 0, samples: true, drafts: new Int32Array(0), pools: false };
  const patience = new TimeLimit(300);
  const masks = new StepMasks(grammars, [part], 258, new Set([EOS]), patience);
  setTimeout(() => setTimeout(gate.resolve, 20));
  for (const end = performance.now() + 600; performance.now() < end;); // blocks the process
  const mask = await masks.get(sequence)!;
  assertEquals([masks.resultOf(sequence), mask[97 >> 5]], ["allows", 1 << (97 & 31)]);
  bound.close();
  patience.close();
});

Deno.test("constraint: fails with constraint_failed, not engine_failed, when no token can follow", async () => {
  const { engine, grammars } = startEngine();
  const masks = grammars.masks.bind(grammars);
  grammars.masks = async (matchers) => (await masks(matchers)).map((mask) => mask.fill(0));
  const error = await assertRejects(
    () => collect(engine.submit({ prompt: PROMPT, constraint: form("a....") })),
    EngineError,
  );
  assertEquals(error.code, "constraint_failed");
  assertEquals([engine.state, grammars.open], ["ready", 0]);
  await engine.close();
});

Deno.test("constraint: fails with constraint_failed and a reason when its tokens take too much work", async () => {
  const { engine, grammars } = startEngine();
  grammars.mostTokens = 2;
  // The third token is sampled in the first answer, and forced in the second.
  for (const text of ["a....", "abcdef"]) {
    const error = await assertRejects(
      () => collect(engine.submit({ prompt: PROMPT, constraint: form(text) })),
      EngineError,
      "requires: its tokens are too much work",
    );
    assertEquals(error.code, "constraint_failed");
  }
  grammars.mostTokens = Infinity;
  assertEquals((await generate(engine, { prompt: PROMPT, constraint: form("ab.") })).text.length, 3);
  assertEquals(grammars.open, 0);
  await engine.close();
});

Deno.test("cancel: a request leaves nothing behind while its constraint compiles or its mask is computed", async () => {
  const { engine, backend, grammars } = startEngine();
  const gate = Promise.withResolvers<void>();
  grammars.compileGate = () => gate.promise;
  const compiling = new AbortController();
  const first = generate(engine, { prompt: PROMPT, constraint: OBJECT, signal: compiling.signal });
  const left = engine.submit({ prompt: PROMPT, constraint: OBJECT })[Symbol.asyncIterator]();
  const unread = left.next();
  await settle();
  compiling.abort();
  await left.return!();
  assertEquals((await unread).done, true);
  gate.resolve();
  assertEquals((await first).finish.reason, "cancelled");
  assertEquals([backend.steps.length, grammars.open], [0, 0]);

  const masks = Promise.withResolvers<void>();
  grammars.maskGate = () => masks.promise;
  const stop = new AbortController();
  const second = generate(engine, { prompt: PROMPT, constraint: OBJECT, signal: stop.signal });
  await settle();
  await settle();
  assertEquals(grammars.open, 1);
  stop.abort();
  assertEquals((await second).finish.reason, "cancelled");
  assertEquals(backend.stopRequests, 1);
  masks.resolve();
  await settle();
  assertEquals(grammars.open, 0);
  await engine.close();
});

Deno.test("engine: a request whose constraint compiles fails with the engine's error, even after close", async () => {
  const { engine, backend, grammars } = startEngine();
  const gate = Promise.withResolvers<void>();
  grammars.compileGate = () => gate.promise;
  const compiling = assertRejects(
    () => generate(engine, { prompt: PROMPT, constraint: OBJECT }),
    EngineError,
    "broken",
  );
  backend.gate = () => Promise.reject(new Error("broken"));
  await assertRejects(() => generate(engine, { prompt: PROMPT }), EngineError, "broken");
  const closed = engine.close();
  await compiling;
  gate.resolve();
  await closed;
  assertEquals(grammars.open, 0);
});

Deno.test("engine: closes its matchers when it fails or closes", async () => {
  const failing = startEngine();
  failing.backend.gate = () => Promise.reject(new Error("broken"));
  const asked = [OBJECT, form("...")].map((constraint) => {
    return assertRejects(
      () => generate(failing.engine, { prompt: PROMPT, constraint }),
      EngineError,
      "broken",
    );
  });
  await Promise.all(asked);
  await settle();
  assertEquals(failing.grammars.open, 0);
  await failing.engine.close();
  const closing = startEngine({ parallel: 1 });
  const steps = stepByStep(closing.backend);
  const left = [OBJECT, OBJECT].map((constraint) => generate(closing.engine, { prompt: PROMPT, constraint }));
  await settle();
  await closing.engine.close();
  steps.release();
  for (const { finish } of await Promise.all(left)) assertEquals(finish.reason, "cancelled");
  assertEquals(closing.grammars.open, 0);
});

Deno.test("thinking: ends when its budget is spent, and its tokens are counted", async () => {
  const { engine } = startEngine();
  const [begin, end] = [[1], [2, 3]];
  const ask = (open: boolean, budget: number, more: Partial<GenerateRequest> = {}) =>
    generate(engine, {
      prompt: PROMPT,
      maxTokens: 20,
      thinking: { open, anywhere: true, begin, end, budget },
      sampling: { temperature: 0, logitBias: new Map([[EOS, -100], [1, -100], [2, -100]]) },
      ...more,
    });
  for (const budget of [0, 1, 7]) {
    const { tokens, finish } = await ask(true, budget);
    assertEquals(tokens.slice(budget, budget + 2), end);
    assertEquals([tokens.length, finish.usage.thinkingTokens], [20, budget]);
  }
  // Thinking never begins, or ends before the budget is spent.
  const never = await ask(false, 0);
  assertEquals([never.tokens.includes(2), never.finish.usage.thinkingTokens], [false, 0]);
  const willing = new Map([[EOS, -100], [1, 100], [2, -100]]);
  const begun = await ask(false, 3, { sampling: { temperature: 0, logitBias: willing } });
  assertEquals(begun.tokens.slice(0, 6), [1, 1, 1, 1, 2, 3]);
  // The budget is used up, so another thought ends at once.
  assertEquals(begun.tokens.slice(6, 9), [1, 2, 3]);
  assertEquals(begun.finish.usage.thinkingTokens, 3);
  await engine.close();
});

Deno.test("thinking: a constraint continues after the forced end of thinking", async () => {
  const { engine } = startEngine();
  const request = (budget: number): GenerateRequest => ({
    prompt: PROMPT,
    constraint: form("t/ok|tt/ok|ttt/ok|tttt/ok|tttt|tttttt"),
    thinking: { open: true, anywhere: false, begin: [], end: bytes("/"), budget },
    sampling: { temperature: 0, logitBias: new Map([[bytes("t")[0], 100]]) },
  });
  for (const budget of [1, 3, 4]) {
    assertEquals((await generate(engine, request(budget))).text, `${"t".repeat(budget)}/ok`);
  }
  // If the constraint refuses the end token, it comes as soon as it is allowed.
  assertEquals((await generate(engine, request(0))).text, "t/ok");
  await engine.close();
});

Deno.test("markers: are separate events, after the text that was held back before them", async () => {
  const { engine } = startEngine();
  const [mark] = bytes("#");
  const { events } = await generate(engine, {
    prompt: PROMPT,
    constraint: form("one#two#three"),
    markers: new Set([mark]),
    stop: ["eth", "e#t", "#"],
  });
  const shown = events.flatMap((event) => {
    return event.type === "text" || event.type === "finish"
      ? [[event.type, event.text]]
      : event.type === "token" && (event.text || event.marker)
      ? [[event.marker ? "marker" : "token", event.text]]
      : [];
  });
  assertEquals(shown, [
    ["token", "o"],
    ["token", "n"],
    ["text", "e"],
    ["marker", ""],
    ["token", "t"],
    ["token", "w"],
    ["token", "o"],
    ["marker", ""],
    ["token", "t"],
    ["token", "h"],
    ["token", "r"],
    ["token", "e"],
    ["finish", "e"],
  ]);
  assertEquals(textOf(events), "onetwothree");
  assertEquals(tokensOf(events).length, 13);
  await engine.close();
});

Deno.test("stop: stop texts do not apply inside thinking", async () => {
  const { engine } = startEngine();
  const ask = (open: boolean) =>
    generate(engine, {
      prompt: PROMPT,
      constraint: form("stop it/go on, stop it|stop it/go on, |"),
      stop: ["stop", "it/go"],
      thinking: { open, anywhere: false, begin: bytes("@"), end: bytes("/"), budget: Infinity },
    });
  assertEquals((await ask(true)).text, "stop it/go on, ");
  assertEquals((await ask(false)).text, "");
  await engine.close();
});

Deno.test("thinking: a begin mark later in the answer is text, with a score and subject to stop texts", async () => {
  const { engine } = startEngine();
  const [mark] = bytes("@");
  const { events, finish } = await generate(engine, {
    prompt: PROMPT,
    constraint: form("@why@/me @ you@"),
    markers: new Set([mark]),
    stop: ["you@"],
    logprobs: 0,
    thinking: { open: false, anywhere: false, begin: [mark], end: bytes("/"), budget: Infinity },
  });
  const shown = events.flatMap((event) => event.type === "token" && event.token === mark ? [event] : []);
  assertEquals(shown.map(({ marker, text }) => marker ? "marker" : text), ["marker", "marker", "@", ""]);
  assert(shown.every(({ logprob }) => logprob !== undefined));
  assertEquals([textOf(events), finish.stop], ["why/me @ ", "you@"]);
  await engine.close();
});

Deno.test("stop: stop texts do not apply inside message headers", async () => {
  const { engine } = startEngine();
  const [begin, end] = [bytes("#"), bytes(":")[0]];
  const ask = (open: boolean) =>
    generate(engine, {
      prompt: PROMPT,
      constraint: form("#stop:it is#stop:there, stop|#stop:it is#stop:there, stop it"),
      stop: ["stop", "is#", "p:i"],
      thinking: {
        open: false,
        anywhere: true,
        begin: [],
        end: bytes("/"),
        budget: 0,
        headers: { open, begin, end },
      },
    });
  for (const open of [true, false]) assertEquals((await ask(open)).text, "#stop:it is#stop:there, ");
  await engine.close();
});

Deno.test("AnswerForm: closes its matcher once, and not while the matcher computes a mask", async () => {
  let closed = 0;
  const matcher = {
    consume: () => true,
    forced: () => [],
    complete: false,
    mayEnd: true,
    failure: undefined,
    close: () => void closed++,
  };
  const bound = new AnswerForm({ matcher: () => matcher }, undefined, spell);
  const masks = Promise.withResolvers<void>();
  bound.lend(() => masks.promise);
  bound.close();
  bound.close();
  assertEquals(closed, 0);
  masks.resolve();
  await settle();
  assertEquals(closed, 1);
});

Deno.test("constraint: a long forced run takes KV blocks as it grows, beside other answers", async () => {
  const { engine } = startEngine({ kvBlocks: 14, maxRows: 40, parallel: 3 }, 400);
  const long = "long ".repeat(50);
  const answers = await Promise.all([
    generate(engine, { prompt: PROMPT, constraint: form(`.${long}.`) }),
    generate(engine, { prompt: promptOf(40, 1), maxTokens: 60, sampling: GREEDY, ignoreEos: true }),
    generate(engine, { prompt: promptOf(40, 2), constraint: form(`${long}.`), logprobs: 1 }),
  ]);
  assertEquals(answers[0].text.slice(1, -1), long);
  assertEquals(answers[2].text.slice(0, -1), long);
  assertEquals(answers.map(({ events }) => finishOf(events).reason), ["stop", "length", "stop"]);
  await engine.close();
});
