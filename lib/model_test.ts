import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { fromFileUrl } from "@std/path";
import type { Chat } from "./chat.ts";
import { CompyError } from "./errors.ts";
import { identityOf, loadedOf, loadModel, type LoadOptions, type Model } from "./model.ts";

const GREETING = "My name is compy. I am a very small language model.";
const ROOT = fromFileUrl(new URL("..", import.meta.url));
/** Options for an answer that continues until it is stopped. */
const ENDLESS = { ignoreEos: true, temperature: 0 };

async function withModel(options: LoadOptions, test: (model: Model) => Promise<void>): Promise<void> {
  await using model = await loadModel(undefined, { threads: 1, ...options });
  await test(model);
}

const statsOf = (model: Model) => loadedOf(model).engine.stats();

async function isIdle(model: Model): Promise<void> {
  for (let tries = 0; statsOf(model).running + statsOf(model).waiting > 0; tries++) {
    assert(tries < 200, "a request still runs");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const codeOf = (error: unknown) => error instanceof CompyError ? error.code : String(error);

Deno.test("model: the demo model chats, generates, embeds and tokenizes", async () => {
  await withModel({}, async (model) => {
    const { text, finishReason, usage } = await model.chat("Who are you?", { temperature: 0 }).answer();
    assertEquals([text, finishReason, usage.completionTokens], [GREETING, "stop", 14]);
    const generation = model.generate("My name is", { temperature: 0, maxTokens: 3, logprobs: 2 });
    const parts = await Array.fromAsync(generation);
    const generated = await generation.answer();
    assertEquals(generated.text, " compy. Rex");
    assertEquals(generated.finishReason, "length");
    assertEquals(generated.tokens?.map(({ text }) => text).join(""), generated.text);
    assertEquals(parts.flatMap(({ tokens = [] }) => tokens), [...generated.tokens!]);
    assert(generated.tokens!.every(({ top, logprob }) => top.length === 2 && top[0].logprob === logprob));
    const { vectors: [vector, shorter] } = await model.embed(["a fox", "a fox"]);
    assertEquals(vector.length, model.info.dimensions);
    assertEquals(shorter, vector);
    assert(Math.abs(Math.hypot(...vector) - 1) < 1e-5);
    assertEquals((await model.embed("a fox", { dimensions: 8 })).vectors[0].length, 8);
    const tokens = model.tokenize("Hello <|im_end|> wörld");
    assertEquals(model.detokenize(tokens), "Hello <|im_end|> wörld");
    assert(
      model.tokenize("Hello", { addSpecial: true, parseSpecial: true }).length >=
        model.tokenize("Hello").length,
    );
    assertEquals(
      (await model.generate(model.tokenize("My name is"), { temperature: 0, maxTokens: 3 }).answer()).text,
      " compy. Rex",
    );
    assertEquals([model.info.id, model.info.architecture, model.info.contextLength], ["demo", "llama", 512]);
  });
});

Deno.test("model: handles control tokens, stop texts, seeds and schemas like the server", async () => {
  await withModel({}, async (model) => {
    const stopped = await model.chat("Who are you?", { temperature: 0, stop: [" very", "never"] }).answer();
    assertEquals([stopped.text, stopped.finishReason, stopped.stop], [
      "My name is compy. I am a",
      "stop",
      " very",
    ]);
    const drawn = () => model.generate("Once", { seed: 7, maxTokens: 12, ignoreEos: true }).answer();
    assertEquals((await drawn()).text, (await drawn()).text);
    const yes = await model.chat("Yes or no?", { regex: "(yes|no)!" }).answer();
    assert(/^(yes|no)!$/.test(yes.text));
    const one = await model.chat("One?", { schema: { enum: [1] } }).answer();
    assertEquals([one.text, one.json, one.finishReason], ["1", 1, "stop"]);
    const gbnf = await model.generate("x", { grammar: 'root ::= "a" "b"' }).answer();
    assertEquals(gbnf.text, "ab");
  });
});

Deno.test("model: a given chat template replaces the file's, and prompts with the same tokens share the cache", async () => {
  const folder = await Deno.makeTempDir({ prefix: "template-" });
  const rules = "{{ bos_token }}" +
    "Answer every question of the user with a short and friendly sentence. ".repeat(9);
  const ask = async (options: LoadOptions) => {
    await using model = await loadModel(undefined, {
      threads: 1,
      promptCache: { folder, bytes: 1e8, eager: true },
      ...options,
    });
    const { engine: { chatTemplate } } = loadedOf(model);
    const prompt = chatTemplate.render([{ role: "user", content: "Hi" }]);
    const { usage } = await model.chat("Hi", { maxTokens: 2, temperature: 0 }).answer();
    return {
      prompt,
      usage,
      template: (await identityOf(model))["chat template"],
      source: chatTemplate.source,
    };
  };
  try {
    const own = await ask({});
    const same = await ask({ chatTemplate: own.source });
    assertEquals([same.template, same.prompt], [own.template, own.prompt]);
    const other = await ask({ chatTemplate: `${rules}A {{ messages[0].content }}` });
    assertEquals(other.prompt.endsWith("sentence. A Hi"), true);
    assert(other.template !== own.template);
    assertEquals(other.usage.cachedTokens, 0);
    // Prompts are found by their tokens, with any template that wrote them.
    const third = await ask({ chatTemplate: `${rules}B {{ messages[0].content }}` });
    assert(third.usage.cachedTokens > 32, `${third.usage.cachedTokens} cached tokens`);
    assert(third.usage.cachedTokens < third.usage.promptTokens);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("model: two models answer at once, and closing one does not affect the other", async () => {
  await using one = await loadModel(undefined, { threads: 1, id: "one", ctx: 128 });
  const two = await loadModel(new URL("../models/demo.gguf", import.meta.url), { threads: 1, id: "two" });
  const asked = { temperature: 0 } as const;
  const [first, second] = await Promise.all([
    one.chat("Who are you?", asked).answer(),
    two.chat("Who are you?", asked).answer(),
  ]);
  assertEquals(first.text, second.text);
  assertEquals([one.info.id, one.info.contextLength, two.info.id], ["one", 128, "two"]);
  await two.close();
  await two.close();
  const closed = await assertRejects(() => two.chat("Hi").answer(), CompyError);
  assertEquals(closed.code, "engine_closed");
  assertEquals((await one.chat("Who are you?", asked).answer()).text, GREETING);
});

Deno.test("model: a signal cancels with its reason before the start, in the queue, during prefill and during decoding", async () => {
  await withModel({ parallel: 1 }, async (model) => {
    const reason = new Error("enough");
    const aborted = (asked: Chat) => assertRejects(() => asked.answer(), Error, "enough");
    await aborted(model.chat("Hi", { signal: AbortSignal.abort(reason) }));
    const { engine } = loadedOf(model);

    const reading = new AbortController();
    const long = model.chat("word ".repeat(200), { signal: reading.signal });
    const failed = aborted(long);
    while (engine.slots()[0] === undefined) await Promise.resolve();
    assertEquals(engine.slots()[0]!.generatedTokens, 0);
    reading.abort(reason);
    await failed;

    const answering = new AbortController();
    const running = model.chat("Hi", { ...ENDLESS, signal: answering.signal });
    const parts = running[Symbol.asyncIterator]();
    assert((await parts.next()).value?.text);
    const queued = new AbortController();
    const waiting = aborted(model.chat("Hi", { signal: queued.signal }));
    while (statsOf(model).waiting === 0) await new Promise((resolve) => setTimeout(resolve));
    queued.abort(reason);
    await waiting;
    assertEquals([statsOf(model).running, statsOf(model).waiting], [1, 0]);
    answering.abort(reason);
    await assertRejects(
      async () => {
        while (!(await parts.next()).done);
      },
      Error,
      "enough",
    );
    await aborted(running);

    const embedding = new AbortController();
    const rows = assertRejects(
      () => model.embed(Array(50).fill("word ".repeat(40)), { signal: embedding.signal }),
      Error,
      "enough",
    );
    embedding.abort(reason);
    await rows;
    await isIdle(model);
  });
});

Deno.test("loadModel: reports progress and ends with the signal's reason", async () => {
  const stop = new AbortController();
  let told = 0;
  const onProgress = ({ done, total }: { done: number; total: number }) => {
    told++;
    assert(done <= total);
    if (done > total / 2) stop.abort(new Error("enough"));
  };
  await assertRejects(() => loadModel(undefined, { onProgress, signal: stop.signal }), Error, "enough");
  assert(told > 1);
  await assertRejects(
    () => loadModel(undefined, { signal: AbortSignal.abort(new Error("no")) }),
    Error,
    "no",
  );
});

Deno.test("generate: leaving the loop cancels the rest, and the answer keeps the text so far", async () => {
  await withModel({}, async (model) => {
    const asked = model.chat("Hi", ENDLESS);
    let read = "";
    for await (const { text = "" } of asked) {
      read += text;
      if (read.length > 20) break;
    }
    const { text, finishReason, usage } = await asked.answer();
    assertEquals(finishReason, "cancelled");
    assert(text.startsWith(read) && usage.completionTokens > 0);
    await isIdle(model);
    {
      await using disposed = model.generate("Hi", ENDLESS);
      disposed.answer();
    }
    await isIdle(model);
  });
});

Deno.test("model: closing ends its streams with engine_closed, also when nobody listens", async () => {
  const model = await loadModel(undefined, { threads: 1, parallel: 2 });
  const ignored = model.chat("Hi", ENDLESS);
  ignored.answer(); // no handler is attached: an unhandled rejection would fail this test
  model.chat("never asked");
  const codes: string[] = [];
  const read = async () => {
    for await (const _ of model.chat("Hi", ENDLESS)) if (codes.length === 0) codes.push("began");
  };
  const reading = read().catch((error) => codes.push(codeOf(error)));
  const waiting = model.chat("Hi").answer().catch((error) => codes.push(codeOf(error)));
  while (codes.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await model[Symbol.asyncDispose]();
  await Promise.all([reading, waiting]);
  assertEquals(codes, ["began", "engine_closed", "engine_closed"]);
  await new Promise((resolve) => setTimeout(resolve, 20));
});

Deno.test("model: each refused request throws an error with a code", async () => {
  await withModel({ parallel: 1, queue: 1 }, async (model) => {
    const cases: [code: string, promise: () => Promise<unknown>, words: string][] = [
      ["context_length_exceeded", () => model.chat("word ".repeat(600)).answer(), "shorten the prompt"],
      ["invalid_constraint", () => model.chat("Hi", { regex: "(" }).answer(), ""],
      [
        "invalid_request",
        () => model.chat("Hi", { temperature: -1 }).answer(),
        "Invalid temperature: must be 0 or more (got -1)",
      ],
      ["invalid_request", () => model.generate("").answer(), ""],
      [
        "invalid_request",
        () => model.generate([99999]).answer(),
        "Invalid prompt: tokens must be whole numbers from 0 to 1279 (got 99999)",
      ],
      ["invalid_request", () => model.embed(["a", ""]), "texts[1]"],
      [
        "invalid_request",
        () => model.embed("a", { dimensions: 1000 }),
        "must be a whole number from 1 to 192",
      ],
      ["not_supported", () => model.rerank("a", ["b"]), "cannot rank"],
      [
        "model_not_found",
        () => loadModel("/no/such.gguf"),
        'Cannot load a model from "/no/such.gguf": there is no such file',
      ],
      ["model_not_found", () => loadModel(ROOT), "it must be a GGUF file (got a folder)"],
      ["invalid_model", () => loadModel(`${ROOT}mod.ts`), "GGUF_MAGIC"],
      [
        "invalid_request",
        () => loadModel(undefined, { ctx: 0 }),
        "Invalid ctx: must be a whole number, 1 or more (got 0)",
      ],
      [
        "invalid_request",
        () => loadModel(undefined, { context: 1 } as LoadOptions),
        'There is no option "context"',
      ],
      [
        "invalid_request",
        () => loadModel(undefined, { backend: "gpu" } as unknown as LoadOptions),
        "Invalid backend: must be cpu, ",
      ],
    ];
    for (const [code, promise, words] of cases) {
      const error = await assertRejects(promise, CompyError, words, code);
      assertEquals(codeOf(error), code, String(error));
    }
    assertThrows(
      () => model.tokenize(1 as unknown as string),
      CompyError,
      "Invalid text: must be a string (got 1)",
    );
    assertThrows(() => model.detokenize([-1]), CompyError, "must be whole numbers from 0 to 1279 (got -1)");
    const running = [model.chat("Hi", ENDLESS), model.chat("Hi", ENDLESS)].map((asked) => asked.answer());
    while (statsOf(model).waiting === 0) await new Promise((resolve) => setTimeout(resolve));
    assertEquals(codeOf(await assertRejects(() => model.chat("Hi").answer())), "queue_full");
    await model.close();
    await Promise.allSettled(running);
  });
});

Deno.test("library: importing it does not access the Deno global", async () => {
  const code = `
    const seen = [];
    const get = (target, name) => {
      const [, , caller] = new Error().stack.split("\\n");
      if (caller.includes(${JSON.stringify(ROOT)})) seen.push(String(name) + caller);
      return target[name];
    };
    Object.defineProperty(globalThis, "Deno", { value: new Proxy(Deno, { get }) });
    const { loadModel } = await import(${JSON.stringify(`${ROOT}mod.ts`)});
    const before = seen.length;
    await (await loadModel()).close();
    if (before > 0 || seen.length === 0) throw new Error(seen.join("\\n"));`;
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["eval", "--no-check", "-q", code],
    cwd: ROOT,
  }).output();
  assert(success, new TextDecoder().decode(stderr));
});
