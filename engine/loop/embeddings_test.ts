import { assert, assertEquals, assertRejects } from "@std/assert";
import type { EngineLimits } from "../schedule/limits.ts";
import {
  expectedTokens,
  FakeBackend,
  fakeRow,
  generate,
  GREEDY,
  promptOf,
  settle,
  startEngine,
  stepByStep,
} from "../../testing/engine.ts";
import type { PooledInfo } from "../api/engine.ts";
import { EngineError } from "../api/errors.ts";

const start = (limits: Partial<EngineLimits> = {}, kind: PooledInfo["kind"] = "last", contextLength = 1024) =>
  startEngine(limits, contextLength, FakeBackend, undefined, { kind, size: 4 });

/** Returns texts of these lengths. */
const textsOf = (...lengths: number[]) => lengths.map((length, i) => promptOf(length, 100 + i));
const rowsOf = (steps: readonly { length: number }[]) => steps.map(({ length }) => length);

Deno.test("embeddings: texts share steps, take no sequence slots, and run after answer tokens", async () => {
  const { engine, backend } = start({ parallel: 1, maxRows: 32 });
  const steps = stepByStep(backend);
  const request = { prompt: promptOf(5), maxTokens: 6, ignoreEos: true, sampling: GREEDY };
  const answer = generate(engine, request);
  await settle();
  const texts = textsOf(10, 10, 10, 10, 10, 3);
  const embedded = engine.embed({ inputs: texts });
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [1, 10, 10, 10, 1]);
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [1, 9, 10, 3]);
  // Only the answer needs candidates. Each text that ended in the step needs a pooled row.
  assertEquals(backend.logitRequests.at(-1)!.length, 1);
  steps.release();
  assertEquals((await embedded).rows, texts.map(fakeRow));
  assertEquals((await answer).tokens, expectedTokens(request.prompt, 6));
  await engine.close();
});

Deno.test("embeddings: a request puts only the texts of the next steps into the queue, and never fills it", async () => {
  const { engine, backend } = start({ parallel: 1, queue: 1, maxRows: 16 });
  const steps = stepByStep(backend);
  const texts = textsOf(...Array<number>(300).fill(4));
  const embedded = engine.embed({ inputs: texts });
  await settle();
  const { running, waiting } = engine.stats();
  assert(running + waiting <= 8, `${running} run and ${waiting} wait`);
  const answers = [generate(engine, { prompt: [1, 2, 3], maxTokens: 2, sampling: GREEDY })];
  await settle();
  answers.push(generate(engine, { prompt: [4], maxTokens: 2, sampling: GREEDY }));
  await settle();
  await assertRejects(
    () => generate(engine, { prompt: [5], maxTokens: 2 }),
    EngineError,
    "The queue is full",
  );
  for (let i = 0; i < 4; i++) await steps.next();
  assert(backend.logitRequests.at(-1)!.length + backend.logitRequests.at(-2)!.length > 0);
  steps.release();
  await Promise.all(answers);
  assertEquals((await embedded).rows, texts.map(fakeRow));
  await engine.close();
});

Deno.test("embeddings: refuses a request when the maximum number of requests runs", async () => {
  const { engine, backend } = start({ parallel: 1, queue: 2 });
  const steps = stepByStep(backend);
  const embedded = [1, 2, 3].map((seed) => engine.embed({ inputs: [promptOf(5, seed)] }));
  const refused = await assertRejects(() => engine.embed({ inputs: [[1]] }), EngineError);
  assertEquals(refused.code, "queue_full");
  steps.release();
  await Promise.all(embedded);
  await engine.embed({ inputs: [[1]] });
  await engine.close();
});

Deno.test("embeddings: a text with mean or first-row pooling runs in one step, before answer tokens if the text did not fit into the previous step", async () => {
  const { engine, backend } = start({ parallel: 2, maxRows: 16 }, "mean");
  const steps = stepByStep(backend);
  const answer = generate(engine, { prompt: promptOf(5), maxTokens: 6, ignoreEos: true, sampling: GREEDY });
  await settle();
  const texts = textsOf(16, 6, 16);
  const embedded = engine.embed({ inputs: texts });
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [1]);
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [16]);
  await steps.next();
  assertEquals(rowsOf(backend.steps.at(-1)!), [1, 6]);
  steps.release();
  assertEquals((await embedded).rows, texts.map(fakeRow));
  const again = await engine.embed({ inputs: texts });
  assertEquals([again.rows, again.usage.cachedTokens], [texts.map(fakeRow), 0]);
  await answer;
  await engine.close();
});

Deno.test("embeddings: rows and tokens stay correct with cancellations in a pool that is too small", async () => {
  for (const stateSlots of [undefined, 6]) {
    const { engine } = start({ parallel: 3, kvBlocks: 11, maxRows: 48, queue: 100, stateSlots }, "last", 320);
    const jobs: Promise<unknown>[] = [];
    for (let seed = 0; seed < 24; seed++) {
      const priority = seed % 3 === 0 ? "batch" : "interactive";
      const texts = Array.from(
        { length: 1 + seed % 7 },
        (_, i) => promptOf(1 + (seed * 53 + i * 41) % 300, seed % 4),
      );
      if (seed % 5 === 4) {
        const abort = new AbortController();
        const left = engine.embed({ inputs: texts, priority, signal: abort.signal });
        setTimeout(() => abort.abort(new Error("left")), seed);
        jobs.push(left.catch((error) => assertEquals(error.message, "left")));
      } else {
        jobs.push(
          engine.embed({ inputs: texts, priority }).then(({ rows }) =>
            assertEquals(rows, texts.map(fakeRow))
          ),
        );
      }
      const prompt = promptOf(1 + seed * 31 % 250, seed % 4);
      const request = { prompt, maxTokens: 20, ignoreEos: true, sampling: GREEDY, priority } as const;
      jobs.push(
        generate(engine, request).then(({ tokens }) => assertEquals(tokens.length, 20)),
      );
      if (seed % 4 === 0) await new Promise((resolve) => setTimeout(resolve));
    }
    await Promise.all(jobs);
    const { running, waiting, kvBlocksUsed } = engine.stats();
    assertEquals([running, waiting, kvBlocksUsed], [0, 0, 0]);
    await engine.close();
  }
});

Deno.test("embeddings: refuses an invalid text by number, before anything runs", async () => {
  const { engine, backend } = start({ maxRows: 16, kvBlocks: 64 }, "cls", 100);
  const refuse = async (inputs: number[][]) => {
    const { code, message, details } = await assertRejects(() => engine.embed({ inputs }), EngineError);
    return [code, message, details.n_prompt_tokens];
  };
  assertEquals(await refuse([[1], promptOf(17)]), [
    "context_length_exceeded",
    'Text 1 has 17 tokens, but a step, in which "cls" needs all of them, has 16: shorten it',
    17,
  ]);
  assertEquals((await refuse([[1], []]))[0], "invalid_request");
  assertEquals((await refuse([[1], [2, 1000]]))[0], "invalid_request");
  assertEquals(backend.steps.length, 0);
  assertEquals((await engine.embed({ inputs: [] })).rows, []);
  await engine.close();
  assertEquals(
    (await assertRejects(() => engine.embed({ inputs: [[1]] }), EngineError)).code,
    "engine_closed",
  );
});

Deno.test("embeddings: every request fails with the reason when the backend fails", async () => {
  const { engine, backend } = start();
  backend.gate = () => Promise.reject(new Error("the roof fell in"));
  const embedded = [1, 2].map((seed) => engine.embed({ inputs: textsOf(seed, 3) }));
  for (const request of embedded) {
    const { code, message } = await assertRejects(() => request, EngineError);
    assertEquals([code, message], ["engine_failed", "The engine has failed: the roof fell in"]);
  }
  await engine.close();
});

Deno.test("embeddings: a row with NaN fails only its own request", async () => {
  class Broken extends FakeBackend {
    override async step(...args: Parameters<FakeBackend["step"]>) {
      const output = await super.step(...args);
      const pooled = output.pooled?.map((row, i) => args[0].tokens[0] === 7 && i === 0 ? row.fill(NaN) : row);
      return { ...output, pooled };
    }
  }
  const { engine } = startEngine({}, 1024, Broken, undefined, { kind: "last", size: 4 });
  const { code } = await assertRejects(() => engine.embed({ inputs: [[7, 1], [7, 2]] }), EngineError);
  assertEquals(code, "engine_failed");
  assertEquals((await engine.embed({ inputs: [[8]] })).rows, [fakeRow([8])]);
  await engine.close();
});
