import { assert, assertEquals } from "@std/assert";
import { Random } from "../sampling/random.ts";
import {
  collect,
  EOS,
  FAKE_VOCABULARY,
  FakeBackend,
  generate,
  GREEDY,
  promptOf,
  startEngine,
} from "../../testing/engine.ts";
import type { EngineLimits } from "../schedule/limits.ts";
import type { TokenEvent } from "../api/events.ts";
import type { GenerateRequest } from "../api/request.ts";
import type { SamplingParams } from "../api/sampling.ts";
import { DraftModel } from "./draft_model.ts";
import type { Drafter } from "./drafter.ts";
import { LookupDrafter } from "./lookup.ts";
import { Speculation } from "./speculation.ts";
import { FreeRows, KnownAnswers } from "./testing.ts";

const ROOMS: Partial<EngineLimits>[] = [
  { kvBlocks: 64 },
  { kvBlocks: 11 }, // preemption
  { kvBlocks: 96, kvWindows: [40, 0, 7] },
  { kvBlocks: 40, kvWindows: [33] },
  { stateSlots: 9, draftSlots: 2 },
  { stateSlots: 10, draftSlots: 4, kvBlocks: 11 },
];

/** Returns the events without fields that depend on timing. */
function said(events: readonly TokenEvent[]): unknown[] {
  return events.flatMap((event): unknown[] => {
    if (event.type === "progress") return [];
    if (event.type !== "finish") return [event];
    const { reason, stop, text, usage: { promptTokens, completionTokens, thinkingTokens } } = event;
    return [{ reason, stop, text, promptTokens, completionTokens, thinkingTokens }];
  });
}

function randomRequest(random: Random, i: number): GenerateRequest {
  const below = (n: number) => Math.floor(random.next() * n);
  const maybe = <T>(chance: number, value: () => T) => random.next() < chance ? value() : undefined;
  const length = 1 + below(60);
  const common = below(2) * 40;
  const prompt = [
    ...Array.from({ length: common }, (_, k) => k * 7 % 256),
    ...Array.from({ length }, (_, k) => (k % 9 * 31 + i) % 256),
  ];
  const sampling: Partial<SamplingParams> = {
    temperature: [0, 0, 0.3, 0.8, 1, 1.5][below(6)],
    seed: 1000 + i,
    topK: maybe(0.3, () => 1 + below(40)),
    topP: maybe(0.3, () => 0.5 + random.next() / 2),
    minP: maybe(0.2, () => random.next() / 10),
    xtcProbability: maybe(0.15, () => 0.5),
    repetitionPenalty: maybe(0.25, () => 1 + random.next()),
    presencePenalty: maybe(0.25, () => random.next()),
    frequencyPenalty: maybe(0.25, () => random.next()),
    dryMultiplier: maybe(0.2, () => 0.8),
    logitBias: maybe(0.2, () => new Map([[below(256), 4], [below(256), -4]])),
  };
  const plain = Object.fromEntries(Object.entries(sampling).filter(([, value]) => value !== undefined));
  return {
    prompt,
    sampling: plain,
    maxTokens: 1 + below(120),
    stop: maybe(0.25, () => [String.fromCharCode(65 + below(26)), "ab"]),
    ignoreEos: below(3) === 0,
    logprobs: maybe(0.3, () => below(5)),
    promptLogprobs: below(8) === 0,
    constraint: maybe(0.15, () => ({ kind: "regex" as const, pattern: `abc${".".repeat(20)}de|abx......` })),
    thinking: maybe(0.25, () => ({
      open: below(2) === 0,
      anywhere: below(2) === 0,
      begin: [60, 62],
      end: [60, 47],
      budget: below(30),
    })),
    markers: maybe(0.2, () => new Set([below(256), below(256)])),
    priority: below(3) === 0 ? "batch" : "interactive",
  };
}

Deno.test("speculation: answers are the same with drafts, whatever is drafted or requested, and with little memory", async () => {
  const random = new Random(17);
  const requests = Array.from({ length: 30 }, (_, i) => randomRequest(random, i));
  const truth: unknown[][] = [];
  const answers = new Map<string, number[]>();
  for (const request of requests) {
    const { engine } = startEngine({ parallel: 1 });
    const events = await collect(engine.submit(request));
    truth.push(said(events));
    const tokens = events.flatMap((event) => event.type === "token" ? [event.token] : []);
    answers.set(request.prompt.join(), [...tokens, EOS, 1, 2, 3]);
    await engine.close();
  }
  for (const [room, limits] of ROOMS.entries()) {
    for (const right of [1, 0.8]) {
      const free = (room + right) % 2 === 0;
      const drafter = new KnownAnswers(answers, random, right, FAKE_VOCABULARY, free);
      const speculation = new Speculation([new LookupDrafter(), drafter], new FreeRows());
      const { engine } = startEngine(limits, 256, undefined, undefined, undefined, speculation);
      const given = await Promise.all(
        requests.map(async (request) => said(await collect(engine.submit(request)))),
      );
      for (const [i, answer] of given.entries()) {
        assertEquals(answer, truth[i], `${JSON.stringify(limits)}, ${right}: request ${i}`);
      }
      const { draftedTokens, acceptedTokens, kvBlocksUsed } = engine.stats();
      assert(
        draftedTokens > 100 && acceptedTokens > 50,
        `${draftedTokens} drafted, ${acceptedTokens} right`,
      );
      assert(right === 1 || acceptedTokens < draftedTokens);
      assertEquals(kvBlocksUsed, 0);
      await engine.close();
    }
  }
});

/** Returns answers with letters between forced texts, made without drafts, and a drafter that knows them. */
async function formedAnswers() {
  const pattern = "a..given text.....another one...the end|b....";
  const requests = Array.from({ length: 6 }, (_, i): GenerateRequest => ({
    prompt: promptOf(20, i),
    maxTokens: 60,
    sampling: { temperature: 0.5, seed: i, logitBias: new Map([[97, 8]]) },
    constraint: { kind: "regex", pattern },
    logprobs: i % 3 === 0 ? undefined : i % 3,
  }));
  const truth: TokenEvent[][] = [];
  const answers = new Map<string, number[]>();
  for (const request of requests) {
    const { engine } = startEngine();
    const events = await collect(engine.submit(request));
    const tokens = events.flatMap((event) => event.type === "token" ? [event.token] : []);
    truth.push(events);
    answers.set(request.prompt.join(), tokens);
    await engine.close();
  }
  return { requests, truth, drafter: new KnownAnswers(answers, { next: () => 0.99 }, 1, FAKE_VOCABULARY) };
}

Deno.test("speculation: drafts continue after forced tokens, unless log-probabilities of the forced tokens are requested", async () => {
  const { requests, truth, drafter } = await formedAnswers();
  const speculation = new Speculation([drafter], new FreeRows());
  const { engine } = startEngine({}, 256, undefined, undefined, undefined, speculation);
  for (const [i, request] of requests.entries()) {
    const events = await collect(engine.submit(request));
    assertEquals(said(events), said(truth[i]), `request ${i}`);
  }
  const { steps, acceptedTokens } = engine.stats();
  assert(acceptedTokens > 50 && steps < 60, `${acceptedTokens} right in ${steps} steps`);
  await engine.close();
});

Deno.test("speculation: a draft token is accepted only if the grammar mask at its own position allows it", async () => {
  for (const known of [0, 2, 5]) {
    const { requests, truth, drafter } = await formedAnswers();
    const speculation = new Speculation([drafter], new FreeRows());
    const { engine, grammars } = startEngine({}, 256, undefined, undefined, undefined, speculation);
    const masks = grammars.draftMasks.bind(grammars);
    grammars.draftMasks = async (matcher, tokens) => {
      if (known === 0) throw new Error("no masks today");
      return (await masks(matcher, tokens)).map((mask, i) => i < known ? mask : mask.fill(0));
    };
    for (const [i, request] of requests.entries()) {
      assertEquals(said(await collect(engine.submit(request))), said(truth[i]), `request ${i}`);
    }
    assert(engine.stats().draftedTokens > 50);
    await engine.close();
  }
});

/** Returns the same model as a drafter. */
function drafting(stateful: boolean, places = 3) {
  const size = { kvBlocks: 8 * places, maxRows: 64, maxLogitRows: places };
  const backend = new FakeBackend({ ...size, stateSlots: stateful ? 2 * places : undefined });
  const model = new DraftModel({
    backend,
    vocabSize: FAKE_VOCABULARY,
    contextLength: 256,
    places,
    maxRows: size.maxRows,
    hasStates: stateful,
    tables: (blocks) => ({ blockTable: blocks, windowTables: [] }),
  });
  return { backend, model };
}

for (const stateful of [false, true]) {
  const kind = stateful ? "with recurrent states" : "with a KV cache";
  Deno.test(`draft model: a model ${kind} predicts its own answers from the sequence's tokens alone`, async () => {
    const { backend, model } = drafting(stateful);
    const speculation = new Speculation([model], new FreeRows());
    const { engine } = startEngine({}, 256, undefined, undefined, undefined, speculation);
    const random = new Random(4);
    const requests = Array.from({ length: 8 }, (_, i): GenerateRequest => ({
      prompt: promptOf(1 + Math.floor(150 * random.next()), i),
      maxTokens: 60,
      ignoreEos: true,
      // Few drafts are right for sampled requests, all for greedy ones.
      sampling: i < 5 ? GREEDY : { temperature: 1, seed: i },
    }));
    const given = await Promise.all(requests.map((request) => generate(engine, request)));
    for (const [i, request] of requests.entries()) {
      const { engine } = startEngine();
      assertEquals(given[i].tokens, (await generate(engine, request)).tokens);
      await engine.close();
    }
    const { accepted } = given[0].finish.usage.drafts!;
    assert(accepted > 20, `${accepted} of 60 tokens were drafted`);
    assertEquals(given.slice(0, 5).map(({ finish }) => finish.usage.drafts?.rejected ?? 0), [0, 0, 0, 0, 0]);
    await engine.close();
    assert(backend.closed);
  });
}

Deno.test("speculation: a request cancelled during drafting is gone afterwards, and others continue", async () => {
  for (const others of [0, 1]) {
    const gate = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const { model } = drafting(false);
    const slow: Drafter = {
      kind: "draft",
      free: false,
      draft: async (wanted) => {
        begun.resolve();
        await gate.promise;
        return await model.draft(wanted);
      },
    };
    const { engine, backend } = startEngine(
      { stateSlots: 8, draftSlots: 2 },
      256,
      undefined,
      undefined,
      undefined,
      new Speculation([slow], new FreeRows()),
    );
    const left = new AbortController();
    const request = { prompt: promptOf(20), maxTokens: 30, ignoreEos: true, sampling: GREEDY };
    const cancelled = generate(engine, { ...request, signal: left.signal });
    const rest = Array.from(
      { length: others },
      () => generate(engine, { ...request, prompt: promptOf(9, 1) }),
    );
    await begun.promise;
    const steps = backend.steps.length;
    left.abort();
    gate.resolve();
    assertEquals((await cancelled).finish.reason, "cancelled");
    const truth = startEngine().engine;
    for (const { tokens } of await Promise.all(rest)) {
      assertEquals(tokens, (await generate(truth, { ...request, prompt: promptOf(9, 1) })).tokens);
    }
    await truth.close();
    await engine.drain(1000);
    assert(others > 0 || backend.steps.length === steps, "a step was computed for nobody");
    assertEquals([engine.stats().kvBlocksUsed, engine.stats().running], [0, 0]);
    await engine.close();
  }
});

Deno.test("speculation: if steps are short, texts without repetition rarely run the drafter, and other texts always do", async () => {
  const fixed = (ms: number) =>
    class extends FreeRows {
      override withoutDrafts(): number | undefined {
        return ms;
      }
    };
  const asked = async (answer: readonly number[], ms: number) => {
    const drafter = new KnownAnswers(new Map([[promptOf(20).join(), answer]]), { next: () => 0.99 }, 1, 258);
    const speculation = new Speculation([drafter], new (fixed(ms))());
    const { engine } = startEngine({}, 256, undefined, undefined, undefined, speculation);
    await generate(engine, { prompt: promptOf(20), maxTokens: 160, ignoreEos: true, sampling: GREEDY });
    const { steps, acceptedTokens } = engine.stats();
    await engine.close();
    return { share: drafter.asked / steps, acceptedTokens };
  };
  const { engine } = startEngine();
  const request = { prompt: promptOf(20), maxTokens: 160, ignoreEos: true, sampling: GREEDY };
  const { tokens } = await generate(engine, request);
  await engine.close();
  const [long, short] = [await asked([], 20), await asked([], 0.1)];
  assert(long.share > 0.9 && short.share < 0.3, `${long.share}, ${short.share}`);
  assert((await asked(tokens, 0.1)).acceptedTokens > 100);
});

Deno.test("speculation: if two drafters are both uncertain, the draft with the higher expected gain is used", async () => {
  const requests = Array.from({ length: 4 }, (_, i): GenerateRequest => (
    { prompt: promptOf(20, i), maxTokens: 100, ignoreEos: true, sampling: GREEDY }
  ));
  const answers = new Map<string, readonly number[]>();
  for (const request of requests) {
    const { engine } = startEngine();
    answers.set(request.prompt.join(), (await generate(engine, request)).tokens);
    await engine.close();
  }
  const random = new Random(3);
  const drafter = (right: number, free: boolean) =>
    new KnownAnswers(answers, random, right, FAKE_VOCABULARY, free);
  class LongSteps extends FreeRows {
    override estimates(sequences: number, from: number, to: number): Float64Array {
      return super.estimates(sequences, from, to).fill(1e6);
    }
  }
  const worse = drafter(0.05, false);
  const speculation = new Speculation([drafter(0.5, true), worse], new LongSteps());
  const { engine } = startEngine({}, 256, undefined, undefined, undefined, speculation);
  for (const request of requests) {
    assertEquals((await generate(engine, request)).tokens, answers.get(request.prompt.join()));
  }
  const { steps } = engine.stats();
  // It takes 247 steps if the last draft is always used.
  assert(worse.asked > 0 && steps < 225, `${steps} steps for 400 tokens`);
  await engine.close();
});
