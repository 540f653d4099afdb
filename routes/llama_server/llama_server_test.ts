import { assert, assertEquals } from "@std/assert";
import type { InfillTokens } from "../../engine/mod.ts";
import { type TestServer, until, withServer } from "../testing_server.ts";

/* Requests of llama-server's clients in its own format. */

const TEXT = "Hello, wörld 🙂!";
const [PREFIX, SUFFIX, MIDDLE, REPO, FILE] = [1, 2, 3, 4, 5];
const infill: InfillTokens = {
  prefix: PREFIX,
  suffix: SUFFIX,
  middle: MIDDLE,
  repo: undefined,
  file: undefined,
};
const gap = { input_prefix: "a(", input_suffix: ")b" };

const bytes = (text: string) => [...new TextEncoder().encode(text)];

async function answered({ post }: TestServer, path: string, body: unknown) {
  const response = await post(path, body);
  const answer = await response.json();
  assertEquals(response.status, 200, JSON.stringify(answer));
  return answer;
}

async function streamed({ post }: TestServer, path: string, body: Record<string, unknown>) {
  const text = await (await post(path, { ...body, stream: true })).text();
  return text.trimEnd().split("\n\n").map((event) => JSON.parse(event.replace(/^data: /, "")));
}

Deno.test("llama-server: max_tokens is another name of n_predict, which wins if both are given", async () => {
  await withServer({}, async (server) => {
    for (
      const limit of [{ max_tokens: 3 }, { n_predict: 3, max_tokens: 9 }, { n_predict: -1, max_tokens: 9 }]
    ) {
      await answered(server, "/completion", { prompt: "Once", ...limit });
    }
    assertEquals(server.engine.requests.map(({ maxTokens }) => maxTokens), [3, 3, undefined]);
  });
});

Deno.test("llama-server: completions have llama-server's format, are the same whole and streamed, and have no [DONE]", async () => {
  await withServer({}, async (server) => {
    const body = { prompt: "Once", n_predict: 30, seed: 7, repeat_penalty: 1.5, temperature: 0.5 };
    const { timings, generation_settings, ...answer } = await answered(server, "/completion", body);
    assertEquals(answer, {
      index: 0,
      content: TEXT,
      tokens: [],
      stop: true,
      id_slot: -1,
      model: "demo",
      tokens_predicted: bytes(TEXT).length + 1,
      tokens_evaluated: 5,
      tokens_cached: 0,
      truncated: false,
      stop_type: "eos",
      stopping_word: "",
    });
    assertEquals([timings.prompt_n, timings.predicted_n], [5, bytes(TEXT).length + 1]);
    const { n_predict, seed, repeat_penalty, temperature } = generation_settings;
    assertEquals([n_predict, seed, repeat_penalty, temperature], [30, 7, 1.5, 0.5]);
    const [{ prompt, maxTokens, sampling }] = server.engine.requests;
    assertEquals([prompt, maxTokens, sampling?.repetitionPenalty], [
      server.engine.encodePrompt("Once"),
      30,
      1.5,
    ]);

    const events = await streamed(server, "/completion", body);
    assertEquals(events.map(({ content }) => content).join(""), TEXT);
    assertEquals(events.map(({ stop }) => stop), [...events.slice(1).map(() => false), true]);
    assertEquals({ ...events.at(-1), content: TEXT, timings, generation_settings }, {
      ...answer,
      timings,
      generation_settings,
    });
  });
});

Deno.test("llama-server: reports how an answer ended, and accepts llama-server's own field names", async () => {
  await withServer({}, async (server) => {
    const ended = async (body: Record<string, unknown>) => {
      const { content, stop_type, stopping_word } = await answered(server, "/completion", {
        prompt: "a",
        ...body,
      });
      return [content, stop_type, stopping_word];
    };
    assertEquals(await ended({ stop: ["zz", "wör"] }), ["Hello, ", "word", "wör"]);
    assertEquals(await ended({ n_predict: 3 }), ["Hel", "limit", ""]);
    assertEquals(await ended({ n_predict: 0 }), ["", "limit", ""]);
    assertEquals(await ended({ n_predict: -1, seed: -1 }), [TEXT, "eos", ""]);
    assertEquals(server.engine.requests.at(-1)!.maxTokens, undefined);
    assertEquals(server.engine.requests.at(-1)!.sampling?.seed, undefined);
    assertEquals(await ended({ prompt: [97, 98], json_schema: { type: "string" } }), [TEXT, "eos", ""]);
    assertEquals(server.engine.requests.at(-1)!.constraint, {
      kind: "json_schema",
      schema: { type: "string" },
    });
    const fields = await answered(server, "/completion", {
      prompt: "a",
      response_fields: ["content", "timings/predicted_n", "nothing", "timings/nothing", "content/length"],
    });
    assertEquals(fields, { content: TEXT, "timings/predicted_n": bytes(TEXT).length + 1 });
  });
});

Deno.test("llama-server: accepts biases by id, and as pairs of id or text with a number or false", async () => {
  await withServer({}, async (server) => {
    const taken = async (logit_bias: unknown) => {
      await answered(server, "/completion", { prompt: "a", logit_bias });
      return [...server.engine.requests.at(-1)!.sampling!.logitBias!];
    };
    assertEquals(await taken({ 3: -100 }), [[3, -100]]);
    assertEquals(await taken([[3, -100], [4, 0.5]]), [[3, -100], [4, 0.5]]);
    assertEquals(await taken([]), []);
    assertEquals(await taken(null), []);
    const [a, b] = server.engine.tokenizer.encode("ab");
    assertEquals(await taken([["ab", 2], [b, -3]]), [[a, 2], [b, -3]]);
    const [[id, never]] = await taken([[7, false]]);
    assertEquals(id, 7);
    assert(never < -1e20 && Number.isFinite(never));
  });
});

Deno.test("llama-server: progress, failures and refusals have llama-server's format", async () => {
  await withServer({ chunk: 16 }, async (server) => {
    const events = await streamed(server, "/completion", { prompt: "x".repeat(40), return_progress: true });
    assertEquals(events.filter((event) => event.prompt_progress).length, 2);
    const cases: [string, Record<string, unknown>, string][] = [
      ["/completion", {}, "prompt"],
      ["/completion", { prompt: [] }, "prompt"],
      ["/completion", { prompt: [1e9] }, "prompt"],
      ["/completion", { prompt: "a", n_probs: 3 }, "n_probs"],
      ["/completion", { prompt: "a", n_predict: -2 }, "n_predict"],
      ["/completion", { prompt: "a", logit_bias: [[1, 2], [3, 101]] }, "logit_bias[1][1]"],
      ["/completion", { prompt: "a", logit_bias: [["", 1]] }, "logit_bias[0][0]"],
      ["/completion", { prompt: "a", logit_bias: [[-1, 1]] }, "logit_bias[0][0]"],
      ["/completion", { prompt: "a", logit_bias: [[1, true]] }, "logit_bias[0][1]"],
      ["/completion", { prompt: "a", logit_bias: [[1]] }, "logit_bias[0]"],
      ["/completion", { prompt: "a", logit_bias: [5] }, "logit_bias[0]"],
      ["/completion", { prompt: "a", logit_bias: [[1e6, 1]] }, "logit_bias"],
      ["/completion", { prompt: "a", logit_bias: Array(5).fill(["x".repeat(256), 1]) }, "logit_bias"],
      ["/completion", { prompt: "a", logit_bias: Array(1025).fill([1, 1]) }, "logit_bias"],
      ["/completion", { prompt: "a", grammar: "root ::= x", json_schema: {} }, "json_schema"],
      ["/infill", { input_prefix: "a" }, "input_suffix"],
      ["/infill", { ...gap, input_extra: [{ filename: "a" }] }, "input_extra[0].text"],
    ];
    for (const [path, body, param] of cases) {
      const response = await server.post(path, body);
      assertEquals([response.status, (await response.json()).error.param], [400, param]);
    }
    const response = await server.post("/infill", gap);
    assertEquals([response.status, (await response.json()).error.code], [400, "infill_not_supported"]);
  });
});

Deno.test("infill: the prompt has the text before and after the gap and the start of the filling", async () => {
  await withServer({ infill, reply: () => "x + y" }, async (server) => {
    const answer = await answered(server, "/infill", { ...gap, prompt: "x", n_predict: 9 });
    assertEquals([answer.content, answer.truncated], ["x + y", false]);
    const [begin] = server.engine.encodePrompt("");
    assertEquals(server.engine.requests[0].prompt, [
      begin,
      PREFIX,
      ...bytes("a(x"),
      SUFFIX,
      ...bytes(")b"),
      MIDDLE,
    ]);
    // Text that looks like a control token stays text.
    await answered(server, "/infill", { input_prefix: "<|end|>", input_suffix: "" });
    assertEquals(server.engine.requests[1].prompt, [begin, PREFIX, ...bytes("<|end|>"), SUFFIX, MIDDLE]);
    const events = await streamed(server, "/infill", gap);
    assertEquals(events.map(({ content }) => content).join(""), "x + y");
  });
});

Deno.test("infill: other files come before the gap, the last ones first while there is room", async () => {
  const files = [{ filename: "one", text: "1".repeat(60) }, { text: "22" }, {
    filename: "three",
    text: "33",
  }];
  const asked = { ...gap, input_extra: files, n_predict: 4 };
  await withServer({ infill: { ...infill, repo: REPO, file: FILE }, contextLength: 100 }, async (server) => {
    const answer = await answered(server, "/infill", asked);
    const [begin] = server.engine.encodePrompt("");
    assertEquals(answer.truncated, true);
    assertEquals(server.engine.requests[0].prompt, [
      begin,
      REPO,
      ...bytes("repository\n"),
      ...[FILE, ...bytes("file 2\n22")],
      ...[FILE, ...bytes("three\n33")],
      ...[FILE, ...bytes("this file\n")],
      ...[PREFIX, ...bytes("a("), SUFFIX, ...bytes(")b"), MIDDLE],
    ]);
  });
  await withServer({ infill, contextLength: 1000 }, async (server) => {
    assertEquals((await answered(server, "/infill", asked)).truncated, false);
    const [begin] = server.engine.encodePrompt("");
    const told = `\n\n--- one ---\n\n${files[0].text}\n\n--- file 2 ---\n\n22\n\n--- three ---\n\n33`;
    assertEquals(server.engine.requests[0].prompt.slice(0, -7), [begin, ...bytes(told)]);
  });
  await withServer({ infill, contextLength: 20 }, async (server) => {
    assertEquals((await answered(server, "/infill", asked)).truncated, true);
    const response = await server.post("/infill", { ...asked, input_prefix: "x".repeat(500) });
    assertEquals([response.status, (await response.json()).error.code], [400, "context_length_exceeded"]);
  });
});

Deno.test("props: describe the model without revealing its location", async () => {
  await withServer({ slots: 3 }, async ({ base, engine }) => {
    const props = await (await fetch(`${base}/props`)).json();
    const { default_generation_settings: settings, ...rest } = props;
    assertEquals(rest, {
      total_slots: 3,
      model_alias: "demo",
      model_path: "demo.gguf",
      chat_template: engine.chatTemplate.source,
      bos_token: "<s>",
      eos_token: "<|end|>",
      modalities: { vision: false, audio: false },
      build_info: "compy",
    });
    assertEquals([settings.n_ctx, settings.params.temperature, settings.params.seed], [1024, 1, -1]);
    assertEquals((await fetch(`${base}/props?model=other`)).status, 404);
  });
});

Deno.test("slots: show the progress of all keys' requests, without any text", async () => {
  const secret = "the secret of another key";
  await withServer({ slots: 2, tokenMs: 5, reply: () => secret, apiKeys: ["one", "two"] }, async (server) => {
    const { base, engine } = server;
    const get = (path: string) => fetch(base + path, { headers: { authorization: "Bearer two" } });
    const idle = await (await get("/slots?model=demo")).json();
    assertEquals(
      idle.map(({ id, is_processing }: { id: number; is_processing: boolean }) => [id, is_processing]),
      [
        [0, false],
        [1, false],
      ],
    );
    const headers = { authorization: "Bearer one" };
    const running = [1, 2].map(() =>
      server.post("/completion", { prompt: secret, n_predict: 20 }, { headers })
    );
    await until(() => engine.slots().every((slot) => slot && slot.generatedTokens > 2));
    const text = await (await get("/slots")).text();
    assert(!text.includes("secret"));
    for (const slot of JSON.parse(text)) {
      const { n_decoded, n_remain } = slot.next_token;
      assertEquals([slot.model, slot.n_ctx, slot.is_processing], ["demo", 1024, true]);
      assertEquals([slot.n_prompt_tokens, n_decoded + n_remain], [secret.length + 1, 20]);
    }
    assertEquals((await get("/slots?fail_on_no_slot=1")).status, 503);
    assertEquals((await get("/slots?model=other")).status, 404);
    for (const answer of running) assertEquals((await (await answer).json()).stop_type, "limit");
    assertEquals((await get("/slots?fail_on_no_slot=1")).status, 200);
  });
});
