import { assert, assertEquals, assertRejects } from "@std/assert";
import OpenAI from "openai";
import { DEFAULT_SAMPLING } from "../../engine/mod.ts";
import { until, withServer } from "../testing_server.ts";

const messages = [{ role: "user" as const, content: "Hi" }];
const TEXT = "Hello, wörld 🙂!";

Deno.test("chat: answers in OpenAI's format", async () => {
  await withServer({}, async ({ client, engine }) => {
    const answer = await client.chat.completions.create({ model: "demo", messages });
    assert(answer.id.startsWith("chatcmpl-"));
    assertEquals(answer.object, "chat.completion");
    assertEquals(answer.model, "demo");
    assertEquals(answer.choices, [{
      index: 0,
      message: { role: "assistant", content: TEXT, refusal: null },
      logprobs: null,
      finish_reason: "stop",
    }]);
    const prompt = engine.encodeChat(messages, { addGenerationPrompt: true });
    assertEquals(engine.requests[0].prompt, prompt);
    assertEquals(answer.usage?.prompt_tokens, prompt.length);
    assertEquals(answer.usage?.total_tokens, prompt.length + answer.usage!.completion_tokens);
    assertEquals(answer.usage?.prompt_tokens_details?.cached_tokens, 0);
    assert(answer._request_id?.startsWith("req_"));
  });
});

Deno.test("chat: a stream starts with the role, ends with the finish, and has usage only on request", async () => {
  await withServer({}, async ({ client }) => {
    for (const include_usage of [false, true]) {
      const stream = await client.chat.completions.create({
        model: "demo",
        messages,
        stream: true,
        stream_options: { include_usage },
      });
      const chunks = await Array.fromAsync(stream);
      assertEquals(new Set(chunks.map(({ id }) => id)).size, 1);
      assertEquals(chunks[0].choices[0].delta.role, "assistant");
      assertEquals(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join(""), TEXT);
      const last = chunks.findLast(({ choices }) => choices.length > 0)!;
      assertEquals(last.choices[0].finish_reason, "stop");
      assertEquals(chunks.filter(({ usage }) => usage).length, include_usage ? 1 : 0);
      assertEquals(chunks.at(-1)!.choices.length, include_usage ? 0 : 1);
    }
  });
});

Deno.test("chat: the client's stream helper assembles several choices", async () => {
  await withServer({ reply: (_, { sampling }) => `seed ${sampling?.seed}` }, async ({ client }) => {
    const stream = client.chat.completions.stream({ model: "demo", messages, n: 3, seed: 7 });
    const { choices } = await stream.finalChatCompletion();
    assertEquals(choices.map(({ message }) => message.content), ["seed 7", "seed 8", "seed 9"]);
    const whole = await client.chat.completions.create({ model: "demo", messages, n: 3, seed: 7 });
    assertEquals(whole.choices.map(({ message }) => message.content), ["seed 7", "seed 8", "seed 9"]);
    assertEquals(whole.choices.map(({ index }) => index), [0, 1, 2]);
    assertEquals(whole.usage!.completion_tokens, 3 * 7);
  });
});

Deno.test("chat: log-probabilities cover exactly its text, whole and streamed", async () => {
  await withServer({}, async ({ client }) => {
    const body = { model: "demo", messages, logprobs: true, top_logprobs: 2, stop: "rld" };
    const whole = await client.chat.completions.create(body);
    const tokens = whole.choices[0].logprobs!.content!;
    assertEquals(whole.choices[0].message.content, "Hello, wö");
    assertEquals(
      new TextDecoder().decode(new Uint8Array(tokens.flatMap(({ bytes }) => bytes!))),
      "Hello, wö",
    );
    assertEquals(tokens[0], {
      token: "H",
      logprob: -72 / 256,
      bytes: [72],
      top_logprobs: [
        { token: "H", logprob: -72 / 256, bytes: [72] },
        { token: "I", logprob: -1 - 72 / 256, bytes: [73] },
      ],
    });
    const stream = await client.chat.completions.create({ ...body, stream: true });
    const streamed = (await Array.fromAsync(stream)).flatMap(({ choices }) =>
      choices[0].logprobs?.content ?? []
    );
    assertEquals(streamed, tokens);
  });
});

Deno.test("chat: every supported field reaches the engine", async () => {
  await withServer({}, async ({ client, engine }) => {
    const own = {
      top_k: 5,
      min_p: 0.1,
      typical_p: 0.9,
      top_n_sigma: 1.5,
      xtc_probability: 0.25,
      xtc_threshold: 0.2,
      dry_multiplier: 0.8,
      dry_base: 2,
      dry_allowed_length: 3,
      dry_penalty_last_n: 64,
      dry_sequence_breakers: ["."],
      repetition_penalty: 1.2,
      ignore_eos: true,
    };
    await client.chat.completions.create({
      ...own,
      model: "demo",
      messages: [{ role: "developer", content: [{ type: "text", text: "a" }, { type: "text", text: "b" }] }],
      temperature: 0,
      top_p: 0.5,
      presence_penalty: -2,
      frequency_penalty: 2,
      logit_bias: { "3": -100 },
      seed: 4,
      stop: ["x", "y"],
      max_tokens: 9,
      max_completion_tokens: 5,
      user: "u",
      store: true,
      service_tier: "auto",
      verbosity: "low",
      tools: [],
      tool_choice: "none",
      response_format: { type: "text" },
    });
    const { prompt, sampling, stop, maxTokens, ignoreEos, logprobs, priority } = engine.requests[0];
    assertEquals(
      engine.tokenizer.decode(prompt, { special: true }),
      "<|start|>developer\na\nb<|end|><|start|>assistant\n",
    );
    assertEquals(sampling, {
      ...DEFAULT_SAMPLING,
      temperature: 0,
      topK: 5,
      topP: 0.5,
      minP: 0.1,
      typicalP: 0.9,
      topNSigma: 1.5,
      xtcProbability: 0.25,
      xtcThreshold: 0.2,
      dryMultiplier: 0.8,
      dryBase: 2,
      dryAllowedLength: 3,
      dryLastN: 64,
      dryBreakers: ["."],
      repetitionPenalty: 1.2,
      presencePenalty: -2,
      frequencyPenalty: 2,
      logitBias: new Map([[3, -100]]),
      seed: 4,
    });
    assertEquals({ stop, maxTokens, ignoreEos, logprobs, priority }, {
      stop: ["x", "y"],
      maxTokens: 5,
      ignoreEos: true,
      logprobs: undefined,
      priority: "interactive",
    });
  });
});

Deno.test("requests: null equals a missing value in every optional field", async () => {
  await withServer({}, async ({ client }) => {
    const fields = [
      "n",
      "max_tokens",
      "temperature",
      "top_p",
      "top_k",
      "min_p",
      "seed",
      "stop",
      "logit_bias",
      "stream",
    ];
    const others = [
      "logprobs",
      "top_logprobs",
      "response_format",
      "tools",
      "tool_choice",
      "stream_options",
      "user",
    ];
    const nulls = Object.fromEntries([...fields, ...others].map((field) => [field, null]));
    const answer = await client.chat.completions.create({ model: "demo", messages, ...nulls });
    assertEquals((answer as OpenAI.ChatCompletion).choices[0].message.content, TEXT);
  });
});

Deno.test("completions: answer whole and streamed, with 16 tokens by default", async () => {
  await withServer({}, async ({ client, engine }) => {
    const whole = await client.completions.create({ model: "demo", prompt: "Say" });
    assertEquals(whole.object, "text_completion");
    const text = "Hello, wörld \uFFFD"; // the last character is cut
    assertEquals(whole.choices, [{ text, index: 0, logprobs: null, finish_reason: "length" }]);
    assertEquals(engine.requests[0].prompt[0], engine.tokenizer.bosToken);
    const stream = await client.completions.create({
      model: "demo",
      prompt: "Say",
      max_tokens: 100,
      stream: true,
    });
    const chunks = await Array.fromAsync(stream);
    assertEquals(chunks.map(({ choices }) => choices[0].text).join(""), TEXT);
    assertEquals(chunks.at(-1)!.choices[0].finish_reason, "stop");
  });
});

Deno.test("completions: accept texts, ids, and several of either, with n answers each", async () => {
  await withServer({ reply: (prompt) => `<${prompt}>` }, async ({ client }) => {
    const texts = async (prompt: OpenAI.CompletionCreateParams["prompt"], n = 1) => {
      const { choices } = await client.completions.create({ model: "demo", prompt, n });
      assertEquals(choices.map(({ index }) => index), choices.map((_, i) => i));
      return choices.map(({ text }) => text);
    };
    assertEquals(await texts("a"), ["<a>"]);
    assertEquals(await texts(["a", "b"]), ["<a>", "<b>"]);
    assertEquals(await texts([97, 98]), ["<ab>"]);
    assertEquals(await texts([[97], [98, 99]], 2), ["<a>", "<a>", "<bc>", "<bc>"]);
  });
});

Deno.test("completions: echo returns the prompt, with its log-probabilities on request", async () => {
  await withServer({}, async ({ client }) => {
    const body = { model: "demo", prompt: "aé", echo: true, logprobs: 1, max_tokens: 2 };
    const whole = await client.completions.create(body);
    const { text, logprobs } = whole.choices[0];
    assertEquals(text, "aéHe");
    assertEquals(logprobs!.tokens, ["<s>", "a", "\uFFFD", "\uFFFD", "H", "e"]);
    assertEquals(logprobs!.token_logprobs, [null, -1, -1, -1, -72 / 256, -101 / 256]);
    assertEquals(logprobs!.text_offset, [0, 0, 1, 1, 2, 3]);
    assertEquals(logprobs!.top_logprobs?.[0], null as unknown as Record<string, number>);
    assertEquals(logprobs!.top_logprobs?.[4], { H: -72 / 256 });
    const streamed = await Array.fromAsync(await client.completions.create({ ...body, stream: true }));
    assertEquals(streamed.map(({ choices }) => choices[0].text).join(""), "aéHe");
    assertEquals(streamed.flatMap(({ choices }) => choices[0].logprobs?.tokens ?? []), logprobs!.tokens);
    assertEquals(
      streamed.flatMap(({ choices }) => choices[0].logprobs?.text_offset ?? []),
      logprobs!.text_offset,
    );
    const score = await client.completions.create({ ...body, max_tokens: 0 });
    assertEquals(score.choices[0].text, "aé");
    assertEquals(score.choices[0].finish_reason, "length");
    const plain = await client.completions.create({ model: "demo", prompt: [97], echo: true, max_tokens: 1 });
    assertEquals(plain.choices[0].text, "aH");
  });
});

Deno.test("models: are listed and retrieved, and an unknown one is 404 model_not_found", async () => {
  await withServer({}, async ({ client }) => {
    assertEquals((await Array.fromAsync(client.models.list())).map(({ id }) => id), ["demo"]);
    assertEquals((await client.models.retrieve("demo")).object, "model");
    for (
      const ask of [
        () => client.models.retrieve("some/other"),
        () => client.chat.completions.create({ model: "other", messages }),
        () => client.completions.create({ model: "other", prompt: "a" }),
      ]
    ) {
      const error = await assertRejects(ask, OpenAI.NotFoundError);
      assertEquals(error.code, "model_not_found");
      assertEquals(error.param, "model");
      assert(error.requestID?.startsWith("req_"));
    }
  });
});

Deno.test("client: a prompt that does not fit is refused in OpenAI's words on every endpoint, whole and streamed", async () => {
  const content = "x".repeat(2000);
  const options = { contextLength: 512, trainedContext: 4096 };
  await withServer(options, async ({ client, engine }) => {
    const messages = [{ role: "user" as const, content }];
    const chat = engine.encodeChat(messages, { addGenerationPrompt: true }).length;
    const text = engine.encodePrompt(content).length;
    for (const stream of [false, true]) {
      const cases: [() => Promise<unknown>, number][] = [
        [() => client.chat.completions.create({ model: "demo", messages, stream }), chat],
        [() => client.responses.create({ model: "demo", input: content, stream }), chat],
        [() => client.completions.create({ model: "demo", prompt: content, stream }), text],
      ];
      for (const [ask, tokens] of cases) {
        const error = await assertRejects(ask, OpenAI.BadRequestError);
        assertEquals(
          error.message,
          `400 This model's maximum context length is 512 tokens. However, your messages resulted in ${tokens} tokens. ` +
            "Please reduce the length of the messages. " +
            "The model can hold 4096 tokens with a higher value of the server setting ctx.",
        );
        const { n_ctx, n_ctx_train, n_prompt_tokens } = error.error as Record<string, number>;
        assertEquals([error.code, n_ctx, n_ctx_train, n_prompt_tokens], [
          "context_length_exceeded",
          512,
          4096,
          tokens,
        ]);
      }
    }
  });
});

Deno.test("client: does not retry a refused request", async () => {
  await withServer({ contextLength: 64 }, async ({ client, engine }) => {
    const retrying = client.withOptions({ maxRetries: 2 });
    let asked = 0;
    const counted = retrying.withOptions({ fetch: (url, init) => (asked++, fetch(url, init)) });
    const long = [{ role: "user" as const, content: "long ".repeat(50) }];
    const overflow = () => counted.chat.completions.create({ model: "demo", messages: long, stream: true });
    const error = await assertRejects(overflow, OpenAI.BadRequestError);
    assertEquals(error.code, "context_length_exceeded");
    const details = error.error as Record<string, unknown>;
    assertEquals(details.n_ctx, 64);
    assertEquals(details.n_prompt_tokens, engine.encodeChat(long, { addGenerationPrompt: true }).length);
    const bad = () => counted.chat.completions.create({ model: "demo", messages, temperature: 3 });
    assertEquals((await assertRejects(bad, OpenAI.BadRequestError)).param, "temperature");
    const template = [{ role: "user" as const, content: "raise" }];
    const refused = () => counted.chat.completions.create({ model: "demo", messages: template });
    assertEquals((await assertRejects(refused, OpenAI.BadRequestError)).message, "400 The template says no");
    assertEquals(asked, 3);
  });
});

Deno.test("queue: a full queue is 429 with retry-after, and the client's retry succeeds", async () => {
  await withServer({ slots: 1, queue: 0, tokenMs: 10 }, async ({ client, engine }) => {
    const first = client.chat.completions.create({ model: "demo", messages });
    await until(() => engine.stats().running === 1);
    const second = () => client.chat.completions.create({ model: "demo", messages, stream: true });
    const error = await assertRejects(second, OpenAI.RateLimitError);
    assertEquals(error.code, "queue_full");
    assertEquals(error.headers.get("retry-after"), "1");
    const retrying = client.withOptions({ maxRetries: 1 });
    const retried = await retrying.chat.completions.create({ model: "demo", messages });
    assertEquals(retried.choices[0].message.content, TEXT);
    await first;
  });
});

Deno.test("engine failure: is a 500 that is not retried and has no internal details", async () => {
  const failure = new Error("secret path /home/x");
  await withServer({ failure }, async ({ client, errors }) => {
    for (const stream of [false, true]) {
      let asked = 0;
      const counted = client.withOptions({
        maxRetries: 2,
        fetch: (url, init) => (asked++, fetch(url, init)),
      });
      const ask = async () => void await counted.chat.completions.create({ model: "demo", messages, stream });
      const error = await assertRejects(ask, OpenAI.InternalServerError);
      assert(!error.message.includes("secret"));
      assertEquals(asked, 1);
    }
    assertEquals(errors, [failure, failure]);
  });
});

Deno.test("engine failure: after the first token it is an error event of a stream; without a stream it is a 500 that is not retried", async () => {
  const late = { failure: new Error("late"), limits: { headersAfterMs: 1 }, tokenMs: 5, chunk: 4 };
  await withServer(late, async ({ client, errors }) => {
    const stream = await client.chat.completions.create({ model: "demo", messages, stream: true });
    const error = await assertRejects(() => Array.fromAsync(stream), OpenAI.APIError);
    assertEquals(error.code, "internal_error");
    const whole = client.withOptions({ maxRetries: 2 }).chat.completions.create({ model: "demo", messages });
    await assertRejects(async () => await whole, OpenAI.InternalServerError);
    assertEquals(errors, [late.failure, late.failure]);
  });
});

Deno.test("chat: streams the progress of a long prompt on request", async () => {
  await withServer({}, async ({ client }) => {
    const long = [{ role: "user" as const, content: "x".repeat(200) }];
    const body = { model: "demo", messages: long, stream: true as const, return_progress: true };
    const chunks = await Array.fromAsync(await client.chat.completions.create(body));
    const progress = chunks.flatMap((chunk) => "prompt_progress" in chunk ? [chunk.prompt_progress] : []);
    assertEquals(progress.length, 3);
    assertEquals(progress[0], { total: 218, cache: 0, processed: 64, time_ms: 64 });
  });
});
