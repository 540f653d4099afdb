import { assert, assertAlmostEquals, assertEquals, assertNotEquals, assertRejects } from "@std/assert";
import OpenAI from "openai";
import { type LiveServer, withLiveServer } from "../../testing/live_server.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";

/* OpenAI's client against a real server process on the demo model. */

const model = "demo";
const GREEDY = { model, temperature: 0, max_tokens: 24 } as const;
const QUESTIONS = [
  "Hi",
  "Who are you?",
  "Tell me a story",
  "Tell me a story about a small compy called Pip who lives under the ferns",
  "What is your name?",
  "Where does Pip live, and what does Pip like to do on a fine day? ".repeat(4),
  "Good morning",
  "And then? ".repeat(20),
];

const asked = (content: string) => [{ role: "user" as const, content }];

/** Returns the text of a greedy chat answer, with a different length per call. */
async function chatText({ client }: LiveServer, n: number): Promise<string> {
  const answer = await client.chat.completions.create({
    ...GREEDY,
    max_tokens: 8 + 5 * n,
    messages: asked(QUESTIONS[n % QUESTIONS.length]),
  });
  return answer.choices[0].message.content!;
}

async function errorOf(call: Promise<unknown>): Promise<InstanceType<typeof OpenAI.APIError>> {
  return await assertRejects(() => call, OpenAI.APIError);
}

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

type LiveTest = (name: string, args: readonly string[], test: (server: LiveServer) => Promise<void>) => void;

const liveIn = (tier: typeof firstTier): LiveTest => (name, args, test) =>
  tier.test(`server: ${name}`, () => withLiveServer(args, test));
/** Each of these tests starts a server, so the first tier runs only a few. */
const live = liveIn(fullTier);
const liveFirst = liveIn(firstTier);

liveFirst("streamed text is the unstreamed text, of chats and of completions", [], async ({ client }) => {
  for (const question of QUESTIONS.slice(0, 4)) {
    const messages = asked(question);
    const whole = await client.chat.completions.create({ ...GREEDY, messages });
    const stream = await client.chat.completions.create({
      ...GREEDY,
      messages,
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = await Array.fromAsync(stream);
    const choices = chunks.flatMap(({ choices }) => choices);
    assertEquals(choices.map(({ delta }) => delta.content ?? "").join(""), whole.choices[0].message.content);
    assertEquals(choices.at(-1)!.finish_reason, whole.choices[0].finish_reason);
    assertEquals(chunks.at(-1)!.usage!.completion_tokens, whole.usage!.completion_tokens);

    const text = await client.completions.create({ ...GREEDY, prompt: question });
    const parts = await Array.fromAsync(
      await client.completions.create({ ...GREEDY, prompt: question, stream: true }),
    );
    assertEquals(parts.map(({ choices }) => choices[0].text).join(""), text.choices[0].text);
  }
});

live("log-probabilities are such, and the greedy token is the likeliest", [], async ({ client }) => {
  const messages = asked("Tell me a story");
  const { choices: [{ message, logprobs }] } = await client.chat.completions.create({
    ...GREEDY,
    messages,
    logprobs: true,
    top_logprobs: 20,
  });
  const tokens = logprobs!.content!;
  assert(tokens.map(({ token }) => token).join("").includes(message.content!));
  for (const { token, logprob, top_logprobs } of tokens) {
    assertEquals([top_logprobs[0].token, top_logprobs[0].logprob], [token, logprob]);
    const values = top_logprobs.map(({ logprob }) => logprob);
    assertEquals(values, [...values].sort((a, b) => b - a));
    assert(values.every((value) => value <= 0), `${values}`);
    const mass = sum(values.map(Math.exp));
    assert(mass > 0.1 && mass <= 1 + 1e-5, `the likeliest 20 have ${mass}`);
  }
});

live("echo scores the prompt as generating it did", [], async ({ client }) => {
  const first = await client.completions.create({
    ...GREEDY,
    prompt: "Once upon a time",
    logprobs: 5,
    echo: true,
  });
  const { text, logprobs } = first.choices[0];
  assert(text.startsWith("Once upon a time"));
  assertEquals(logprobs!.token_logprobs![0], null);
  assertEquals(logprobs!.tokens!.join(""), text);
  assertEquals(logprobs!.text_offset![0], 0);
  // With the whole text as prompt, the prompt's tokens and log-probabilities must be the same.
  const again = await client.completions.create({
    model,
    prompt: text,
    logprobs: 5,
    echo: true,
    max_tokens: 0,
  });
  const scores = again.choices[0].logprobs!;
  assertEquals(again.choices[0].text, text);
  assertEquals(scores.tokens, logprobs!.tokens);
  for (const [i, score] of scores.token_logprobs!.entries()) {
    if (i > 0) assertAlmostEquals(score, logprobs!.token_logprobs![i], 1e-5, `token ${i}`);
  }
});

live("stop strings end an answer before them, streamed or not", [], async ({ client }) => {
  const { choices: [{ text }] } = await client.completions.create({ ...GREEDY, prompt: "Once upon" });
  for (const from of [1, 5, 9]) {
    const stop = text.slice(from, from + 4);
    const expected = text.slice(0, text.indexOf(stop));
    const whole = await client.completions.create({ ...GREEDY, prompt: "Once upon", stop });
    assertEquals([whole.choices[0].text, whole.choices[0].finish_reason], [expected, "stop"]);
    const parts = await Array.fromAsync(
      await client.completions.create({
        ...GREEDY,
        prompt: "Once upon",
        stop: ["\0no", "🦖", stop, "\n\n"],
        stream: true,
      }),
    );
    assertEquals(parts.map(({ choices }) => choices[0].text).join(""), expected);
    assertEquals(parts.at(-1)!.choices[0].finish_reason, "stop");
  }
  const never = { stop: ["\\b.*", "🦖🦕", "\u0000", "​"] };
  const free = await client.completions.create({ ...GREEDY, prompt: "Once upon", ...never });
  assertEquals(free.choices[0].text, text);
});

live("a seed gives the same text again, another seed another; n answers differ", [], async ({ client }) => {
  const drawn = async (seed: number) => {
    const messages = asked("Tell me a story");
    const answer = await client.chat.completions.create({
      model,
      temperature: 1,
      max_tokens: 32,
      seed,
      n: 3,
      messages,
    });
    return answer.choices.map(({ message }) => message.content);
  };
  const [one, again, other] = [await drawn(1), await drawn(1), await drawn(1000)];
  assertEquals(one, again);
  assertEquals(new Set(one).size, 3);
  assertNotEquals(one, other);
});

live(
  "usage counts what /tokenize counts, and a repeated prompt is found in the cache",
  [],
  async (server) => {
    const { client, post } = server;
    const messages = asked("What is a fern? ".repeat(20));
    const { prompt } = await post("/apply-template", { messages });
    const { tokens } = await post("/tokenize", { content: prompt, add_special: true, parse_special: true });
    const usages = [];
    for (let i = 0; i < 2; i++) {
      usages.push((await client.chat.completions.create({ ...GREEDY, max_tokens: 5, messages })).usage!);
    }
    for (const usage of usages) {
      assertEquals(usage.prompt_tokens, tokens.length);
      assertEquals(usage.total_tokens, tokens.length + usage.completion_tokens);
      assert(usage.completion_tokens >= 1 && usage.completion_tokens <= 5);
    }
    assertEquals(usages[0].prompt_tokens_details!.cached_tokens, 0);
    const cached = usages[1].prompt_tokens_details!.cached_tokens!;
    assert(cached > tokens.length / 2 && cached < tokens.length, `${cached} of ${tokens.length}`);
  },
);

live(
  "max_tokens is the most there is: none, one, or what the context holds",
  ["--ctx", "128"],
  async (server) => {
    const { client, post } = server;
    const prompt = "Once upon a time";
    const { tokens } = await post("/tokenize", { content: prompt, add_special: true });
    for (const [max_tokens, expected] of [[0, 0], [1, 1], [2 ** 31 - 1, 128 - tokens.length]]) {
      const answer = await client.completions.create({ model, prompt, max_tokens, ...{ ignore_eos: true } });
      assertEquals([answer.usage!.completion_tokens, answer.choices[0].finish_reason], [expected, "length"]);
    }
  },
);

live("what cannot be answered is a 4xx that says why", ["--ctx", "256"], async ({ client, idle }) => {
  const missing = await errorOf(client.chat.completions.create({ model: "gpt-4o", messages: asked("Hi") }));
  assertEquals([missing.status, missing.code, missing.param], [404, "model_not_found", "model"]);
  const long = [
    client.completions.create({ model, prompt: "a fern ".repeat(15_000) }),
    client.chat.completions.create({ model, messages: asked("🦖".repeat(25_000)) }),
    client.chat.completions.create({ model, messages: asked("x".repeat(100_000)), stream: true }),
  ].map(errorOf); // concurrent: the last one may be refused first
  for (const refused of long) {
    const error = await refused;
    assertEquals([error.status, error.code], [400, "context_length_exceeded"]);
    const { n_ctx, n_prompt_tokens } = error.error as { n_ctx: number; n_prompt_tokens: number };
    assert(n_ctx === 256 && n_prompt_tokens > 256, error.message);
  }
  const empty = await errorOf(client.completions.create({ model, prompt: "" }));
  assertEquals([empty.status, empty.param], [400, "prompt"]);
  await idle();
});

const ODD = [
  "",
  " ",
  "\n\n\n\t ",
  "🦖",
  "\u0000",
  "a\u0000b\u0000",
  "\uFFFD",
  "\uD800",
  "e\u0301\u200B",
  "<|im_end|>",
  "\u202Eabc",
];

live("odd prompts are answered like others, the same each time", [], async ({ client, idle }) => {
  for (const content of ODD) {
    const ask = async () =>
      (await client.chat.completions.create({ ...GREEDY, messages: asked(content) })).choices[0].message
        .content;
    const answer = await ask();
    assertEquals(typeof answer, "string", JSON.stringify(content));
    assertEquals(await ask(), answer, JSON.stringify(content));
    if (content === "") continue;
    const text = await client.completions.create({ ...GREEDY, prompt: content, echo: true });
    assert(text.choices[0].text.startsWith(content.toWellFormed()), JSON.stringify(content));
  }
  await idle();
});

liveFirst("eight at once get exactly what each gets alone", ["--parallel", "8"], async (server) => {
  const alone: string[] = [];
  for (let n = 0; n < 8; n++) alone.push(await chatText(server, n));
  assert(new Set(alone).size > 4, "the answers should differ");
  for (let round = 0; round < 2; round++) {
    assertEquals(await Promise.all(alone.map((_, n) => chatText(server, n))), alone);
  }
});

live(
  "thirty-two at once in four places are all answered, as if alone",
  ["--parallel", "4"],
  async (server) => {
    const expected = await Promise.all(Array.from({ length: 8 }, (_, n) => chatText(server, n)));
    const answers = await Promise.all(Array.from({ length: 32 }, (_, n) => chatText(server, n % 8)));
    assertEquals(answers, answers.map((_, n) => expected[n % 8]));
    await server.idle();
  },
);

live(
  "clients that leave free their places; the others do not notice",
  ["--parallel", "2"],
  async (server) => {
    const { client, metric, idle } = server;
    const expected = await chatText(server, 3);
    const generated = await metric("compy_generated_tokens_total");
    const leave = async (n: number) => {
      const stream = await client.chat.completions.create({
        model,
        messages: asked(`${QUESTIONS[n % 8]} ${n}`),
        max_tokens: 400,
        stream: true,
        ...{ ignore_eos: true },
      });
      let seen = 0;
      for await (const _ of stream) if (++seen > n % 3) break; // closes the connection
    };
    const stay = () => chatText(server, 3);
    const staying = [...Array(12).keys()].map((n) => n % 4 === 3 ? stay() : leave(n));
    const answers = await Promise.all(staying);
    assertEquals(answers.filter((answer) => answer !== undefined), [expected, expected, expected]);
    await idle();
    const spent = await metric("compy_generated_tokens_total") - generated;
    assert(spent < 9 * 400, `${spent} tokens were generated for clients that had left`);
  },
);

liveFirst("/health answers while long prompts are read", ["--parallel", "4"], async ({ client, url }) => {
  let busy = true;
  const reading = Promise.all(
    Array.from(
      { length: 12 },
      (_, n) => client.completions.create({ model, prompt: `${n} a fern `.repeat(100), max_tokens: 2 }),
    ),
  ).finally(() => busy = false);
  let slowest = 0;
  while (busy) {
    const start = performance.now();
    const response = await fetch(`${url}/health`);
    assertEquals(await response.json(), { status: "ok" });
    slowest = Math.max(slowest, performance.now() - start);
  }
  await reading;
  assert(slowest > 0 && slowest < 1000, `${slowest} ms`);
});
