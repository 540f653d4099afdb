import { assert, assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import OpenAI, { toFile } from "openai";
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod.js";
import { z } from "zod";
import { type Call, isMood, MOST, QUESTION, type Served, STEADY } from "./calls.ts";

/* Calls of the npm package `openai`. */

const Mood = z.object({ mood: z.enum(["calm", "wild"]), sure: z.boolean() });
const messages = [{ role: "user" as const, content: QUESTION }];

function call(name: string, run: (client: OpenAI, model: string) => Promise<void>): Call {
  return {
    name,
    run: ({ base, model }: Served) =>
      run(new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 }), model),
  };
}

type Extra = { reasoning_content?: string };

const chatCalls = [
  call("chat, whole and streamed", async (client, model) => {
    const request = { ...STEADY, model, messages, max_tokens: MOST };
    const whole = await client.chat.completions.create(request);
    const { message, finish_reason } = whole.choices[0];
    const stream = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
    let thought = "";
    for await (const chunk of stream) {
      thought += (chunk.choices[0]?.delta as Extra | undefined)?.reasoning_content ?? "";
    }
    const streamed = await stream.finalChatCompletion();
    assertEquals(streamed.choices[0].message.content ?? "", message.content);
    assertEquals(streamed.choices[0].finish_reason, finish_reason);
    assertEquals(thought, (message as Extra).reasoning_content);
    assertEquals(streamed.usage?.completion_tokens, whole.usage?.completion_tokens);
    assert(thought.length > 0 && whole.usage!.completion_tokens > 0);
  }),
  call("chat, several answers with log-probabilities", async (client, model) => {
    const answer = await client.chat.completions.create({
      model,
      messages,
      n: 3,
      seed: 1,
      max_tokens: 8,
      reasoning_effort: "none",
      logprobs: true,
      top_logprobs: 2,
    });
    assertEquals(answer.choices.length, 3);
    for (const { logprobs } of answer.choices) {
      for (const { top_logprobs } of logprobs!.content!) assertEquals(top_logprobs.length, 2);
    }
  }),
  call("chat in a form, parsed whole and streamed", async (client, model) => {
    const request = { ...STEADY, model, messages, response_format: zodResponseFormat(Mood, "mood") };
    const whole = await client.chat.completions.parse(request);
    assert(isMood(whole.choices[0].message.parsed));
    const streamed = await client.chat.completions.stream(request).finalChatCompletion();
    assertEquals(streamed.choices[0].message.parsed, whole.choices[0].message.parsed);
  }),
  call("chat with tools, and the loop that runs them", async (client, model) => {
    const given: unknown[] = [];
    const tool = zodFunction({
      name: "set_mood",
      parameters: Mood,
      function: (args) => {
        given.push(args);
        return "done";
      },
    });
    const request = {
      ...STEADY,
      model,
      messages,
      tools: [tool],
      tool_choice: "required" as const,
      parallel_tool_calls: false,
    };
    const answer = await client.chat.completions.parse(request);
    assertEquals(answer.choices[0].finish_reason, "tool_calls");
    const [called] = answer.choices[0].message.tool_calls!;
    assert(called.type === "function" && isMood(JSON.parse(called.function.arguments)));
    for (const stream of [false, true] as const) {
      const options = { maxChatCompletions: 2 };
      const runner = stream
        ? client.chat.completions.runTools({ ...request, stream }, options)
        : client.chat.completions.runTools({ ...request, stream }, options);
      await runner.done();
      assert(given.splice(0).every(isMood));
    }
  }),
  call("completions, whole and streamed", async (client, model) => {
    const request = { model, prompt: "Once upon a time", max_tokens: 24, temperature: 0 };
    const whole = await client.completions.create(request);
    const chunks = await Array.fromAsync(await client.completions.create({ ...request, stream: true }));
    assertEquals(chunks.flatMap(({ choices }) => choices[0]?.text ?? "").join(""), whole.choices[0].text);
  }),
];

const responseCalls = [
  call("responses, whole and streamed", async (client, model) => {
    const request = { ...STEADY, model, input: QUESTION, instructions: "Be kind", max_output_tokens: MOST };
    const whole = await client.responses.create(request);
    const streamed = await client.responses.stream(request).finalResponse();
    assertEquals(streamed.output_text, whole.output_text);
    assertEquals(streamed.output.map(({ type }) => type), whole.output.map(({ type }) => type));
    assertEquals(streamed.usage?.output_tokens, whole.usage?.output_tokens);
    assertEquals(whole.output[0].type, "reasoning");
    const counted = await client.responses.inputTokens.count(request);
    assertEquals(counted.input_tokens, whole.usage?.input_tokens);
  }),
  call("responses in a form, parsed whole and streamed", async (client, model) => {
    const request = { ...STEADY, model, input: QUESTION, text: { format: zodTextFormat(Mood, "mood") } };
    const whole = await client.responses.parse(request);
    assert(isMood(whole.output_parsed));
    const streamed = await client.responses.stream(request).finalResponse();
    assertEquals(streamed.output_parsed, whole.output_parsed);
  }),
  call("responses with tools, whose answers go back", async (client, model) => {
    const tools = [zodResponsesFunction({ name: "set_mood", parameters: Mood })];
    const request = { ...STEADY, model, tools, tool_choice: "required" as const, parallel_tool_calls: false };
    const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: QUESTION }];
    for (let round = 0; round < 2; round++) {
      const answer = round === 0
        ? await client.responses.parse({ ...request, input })
        : await client.responses.stream({ ...request, input }).finalResponse();
      const calls = answer.output.filter((item) => item.type === "function_call");
      assertEquals(calls.length, 1);
      assert(isMood(calls[0].parsed_arguments));
      for (const { ...item } of answer.output) input.push(item as OpenAI.Responses.ResponseInputItem);
      input.push({ type: "function_call_output", call_id: calls[0].call_id, output: "done" });
    }
  }),
];

const otherCalls = [
  call("models", async (client, model) => {
    const ids = await Array.fromAsync(client.models.list(), ({ id }) => id);
    assertEquals(ids, [model]);
    assertEquals((await client.models.retrieve(model)).id, model);
  }),
  call("refusals, by status and parameter", async (client, model) => {
    const error = await assertRejects(
      () => client.chat.completions.create({ model, messages, temperature: 9 }),
      OpenAI.BadRequestError,
    );
    assertEquals(error.param, "temperature");
    await assertRejects(
      () => client.responses.create({ model: "none", input: QUESTION, stream: true }),
      OpenAI.NotFoundError,
    );
  }),
  call("a stream that is left", async (client, model) => {
    const request = { model, messages, stream: true, ignore_eos: true, max_tokens: 1000 } as const;
    const stream = await client.chat.completions.create(request);
    for await (const chunk of stream) if (chunk.choices[0].delta.content !== undefined) break;
    assert(stream.controller.signal.aborted);
  }),
];

const embeddingCalls = [
  call("embeddings, as floats and in base64", async (client, model) => {
    const request = { model, input: [QUESTION, "Hi"] };
    const packed = await client.embeddings.create(request); // the client asks for base64 and unpacks it
    const plain = await client.embeddings.create({ ...request, encoding_format: "float" });
    assertEquals(packed.data.map(({ index }) => index), [0, 1]);
    for (const [i, { embedding }] of packed.data.entries()) {
      assertAlmostEquals(embedding.reduce((sum, x) => sum + x * x, 0), 1, 1e-5);
      embedding.forEach((x, k) => assertAlmostEquals(x, plain.data[i].embedding[k], 1e-6));
    }
    const short = await client.embeddings.create({ ...request, dimensions: 8 });
    assertEquals(short.data.map(({ embedding }) => embedding.length), [8, 8]);
    assert(packed.usage.prompt_tokens > 0);
  }),
];

/** The body of a batch line for each endpoint. */
const LINES: Record<string, Record<string, unknown>> = {
  "/v1/chat/completions": { messages, max_tokens: 4 },
  "/v1/completions": { prompt: "Once", max_tokens: 4 },
  "/v1/responses": { input: QUESTION, max_output_tokens: 4 },
  "/v1/messages": { messages, max_tokens: 4 },
  "/v1/embeddings": { input: QUESTION },
};

const batchCalls = Object.entries(LINES).map(([url, body]) =>
  call(`files and batches of ${url}`, async (client, model) => {
    const lines = ["a", "b"].map((custom_id) =>
      JSON.stringify({ custom_id, method: "POST", url, body: { model, ...body } })
    );
    const file = await client.files.create({
      file: await toFile(new TextEncoder().encode(lines.join("\n")), "in.jsonl"),
      purpose: "batch",
    });
    const created = await client.batches.create({
      input_file_id: file.id,
      endpoint: url as OpenAI.BatchCreateParams["endpoint"],
      completion_window: "24h",
    });
    const batch = await ended(client, created.id);
    assertEquals([batch.status, batch.request_counts], ["completed", { total: 2, completed: 2, failed: 0 }]);
    assert(batch.usage!.input_tokens > 0);
    const text = await (await client.files.content(batch.output_file_id!)).text();
    const answers = text.trimEnd().split("\n").map((line) => JSON.parse(line));
    assertEquals(answers.map(({ custom_id }) => custom_id).sort(), ["a", "b"]);
    assert((await Array.fromAsync(client.batches.list())).some(({ id }) => id === batch.id));
    await assertRejects(() => client.batches.cancel(batch.id), OpenAI.BadRequestError);
    for (const id of [file.id, batch.output_file_id!]) {
      assertEquals((await client.files.retrieve(id)).id, id);
      assertEquals((await client.files.delete(id)).deleted, true);
    }
    assertEquals((await Array.fromAsync(client.files.list())).filter(({ id }) => id === file.id), []);
  })
);

async function ended(client: OpenAI, id: string): Promise<OpenAI.Batch> {
  for (const end = performance.now() + 30_000;;) {
    const batch = await client.batches.retrieve(id);
    if (["completed", "failed", "cancelled", "expired"].includes(batch.status)) return batch;
    if (performance.now() > end) {
      throw new Error(`After thirty seconds the batch is ${JSON.stringify(batch)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export const OPENAI_CALLS: readonly Call[] = [
  ...chatCalls,
  ...responseCalls,
  ...embeddingCalls,
  ...otherCalls,
  ...batchCalls,
];
