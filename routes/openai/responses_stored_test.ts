import { assert, assertEquals, assertRejects } from "@std/assert";
import OpenAI from "openai";
import { digestOf, KeyRing } from "../access/keys.ts";
import { ResponseStore } from "../../jobs/service/response_store.ts";
import { execute } from "../execute.ts";
import { FakeEngine } from "../testing.ts";
import { inDataFolder, withBatches } from "../testing_batches.ts";
import { until, withServer } from "../testing_server.ts";

/* Stored responses through OpenAI's unmodified client; the fake model thinks and calls in channels (testing_chat.ts). */

const THINK = "<|start|>think\nParis…";
const CALL = '<|start|>call weather\n{"city": "Paris"}';
const SAY = "<|start|>text\nSunny";

type Body = Partial<OpenAI.Responses.ResponseCreateParamsNonStreaming> & Record<string, unknown>;

function ask(client: OpenAI, input: Body["input"], body: Body = {}) {
  return client.responses.create({ model: "demo", input, ...body } as never) as Promise<
    OpenAI.Responses.Response
  >;
}

const tool = {
  type: "function" as const,
  name: "weather",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  strict: false,
};

/** Answers with a thought and a call first, then with text. */
const agent = {
  reply: (prompt: string) => prompt.includes("tool") ? THINK + SAY : THINK + CALL,
  contextLength: 100_000,
};

Deno.test("stored responses: a request that continues one has the prompt of a request with all items", async () => {
  await withServer(agent, async ({ client, engine }) => {
    const first = await ask(client, "Weather?", { instructions: "Be kind", tools: [tool] });
    const [, call] = first.output as OpenAI.Responses.ResponseFunctionToolCall[];
    const output = { type: "function_call_output" as const, call_id: call.call_id, output: "20 °C" };
    const second = await ask(client, [output], { previous_response_id: first.id, tools: [tool] });
    const third = await ask(client, "Thanks", { previous_response_id: second.id });
    assertEquals(
      [second.previous_response_id, third.previous_response_id],
      [first.id, second.id] as (string | null)[],
    );
    const whole = [
      { role: "user" as const, content: "Weather?" },
      ...first.output,
      output,
      ...second.output,
      { role: "user" as const, content: "Thanks" },
    ];
    const again = await ask(client, whole as Body["input"], { store: false });
    assertEquals((again as unknown as { store: boolean }).store, false);
    const conversations = engine.chatForm.conversations.map(({ messages }) => messages);
    assertEquals(conversations[2], conversations[3]);
    assertEquals(conversations[2].map(({ role }) => role), [
      "user",
      "assistant",
      "tool",
      "assistant",
      "user",
    ]);
    // Instructions are not inherited. The items after them are the same, so the prompt cache finds them as a prefix.
    const [one, two, three] = engine.requests.map(({ prompt }) =>
      engine.tokenizer.decode(prompt, { special: true })
    );
    const head = "<|start|>system\nBe kind<|end|>";
    const body = (prompt: string) => prompt.slice(0, -"<|start|>assistant\n".length);
    assert(one.startsWith(head) && two.startsWith(body(one).slice(head.length)));
    assert(three.startsWith(body(two)));
    const count = await client.responses.inputTokens.count({
      model: "demo",
      input: "Thanks",
      previous_response_id: second.id,
    });
    assertEquals(count.input_tokens, third.usage?.input_tokens);
  });
});

Deno.test("stored responses: item references stand for the items", async () => {
  await withServer(agent, async ({ client, engine }) => {
    const first = await ask(client, "Weather?", { tools: [tool] });
    const references = first.output.map(({ id }) => ({ type: "item_reference" as const, id: id! }));
    const input = [{ role: "user" as const, content: "Weather?" }, ...references];
    await ask(client, input, { tools: [tool] });
    await ask(client, [{ role: "user" as const, content: "Weather?" }, ...first.output] as Body["input"]);
    const [, byReference, byValue] = engine.chatForm.conversations.map(({ messages }) => messages);
    assertEquals(byReference, byValue);
    const stranger = { type: "item_reference" as const, id: "msg_1" };
    const unknown = { ...stranger, id: references[0].id.replace(/....$/, "ffff") };
    for (const [item, at] of [[stranger, 0], [unknown, 1]] as const) {
      const items = at === 0 ? [item] : [{ role: "user" as const, content: "a" }, item];
      const error = await assertRejects(() => ask(client, items), OpenAI.NotFoundError);
      assertEquals([error.code, error.param], ["item_not_found", `input[${at}].id`]);
    }
  });
});

Deno.test("stored responses: are retrieved, listed with their input, and deleted", async () => {
  await withServer(agent, async ({ client, post, base }) => {
    const first = await ask(client, "Weather?", {
      metadata: { a: "b" },
      include: ["message.output_text.logprobs"],
    });
    const second = await ask(
      client,
      [{ role: "user", content: [{ type: "input_text", text: "And Rome?" }] }],
      {
        previous_response_id: first.id,
      },
    );
    for (const response of [first, second]) {
      assertEquals(await client.responses.retrieve(response.id), response);
    }
    const items = await Array.fromAsync(
      client.responses.inputItems.list(second.id, { order: "asc", limit: 1 }),
    );
    assertEquals(items.map(({ type }) => type), [
      "message",
      ...first.output.map(({ type }) => type),
      "message",
    ]);
    assertEquals(items.slice(1, -1).map(({ id }) => id), first.output.map(({ id }) => id));
    assertEquals((items.at(-1) as { content: unknown }).content, [{ type: "input_text", text: "And Rome?" }]);
    const newest = await client.responses.inputItems.list(second.id, { limit: 1 });
    assertEquals([newest.data[0].id, newest.has_more], [items.at(-1)!.id, true]);
    await assertRejects(
      () => client.responses.inputItems.list(second.id, { after: "msg_1" }),
      OpenAI.BadRequestError,
      "after",
    );
    const streamed = await fetch(`${base}/v1/responses/${first.id}?stream=true`);
    assertEquals([streamed.status, (await streamed.json()).error.param], [400, "stream"]);

    const removed = await fetch(`${base}/v1/responses/${first.id}`, { method: "DELETE" });
    assertEquals(await removed.json(), { id: first.id, object: "response", deleted: true });
    for (
      const call of [
        () => client.responses.retrieve(first.id),
        () => client.responses.delete(first.id),
        () => client.responses.inputItems.list(first.id),
        () => client.responses.retrieve("../lock"),
      ]
    ) assertEquals((await assertRejects(call, OpenAI.NotFoundError)).code, "response_not_found");
    const { error } = await (await post("/v1/responses", { input: "a", previous_response_id: second.id }))
      .json();
    assertEquals([error.code, error.param, error.message.includes(first.id)], [
      "previous_response_not_found",
      "previous_response_id",
      true,
    ]);
  });
});

Deno.test("stored responses: an unknown previous response has OpenAI's status and code", async () => {
  await withServer({}, async ({ client, engine }) => {
    const error = await assertRejects(
      () => ask(client, "Hi", { previous_response_id: "resp_1" }),
      OpenAI.BadRequestError,
      "Previous response with id 'resp_1' not found",
    );
    assertEquals([error.code, error.param], ["previous_response_not_found", "previous_response_id"]);
    assertEquals(engine.requests, []);
  });
  const body = { input: "Hi", previous_response_id: "resp_1" };
  const { status, body: refusal } = await execute(new FakeEngine(), { url: "/v1/responses", body });
  const { code, param } = refusal.error as Record<string, string>;
  assertEquals([status, code, param], [400, "unsupported_parameter", "previous_response_id"]);
});

Deno.test("stored responses: a streamed response can be continued as soon as its last event has arrived", async () => {
  await withServer(agent, async ({ client }) => {
    const stream = await client.responses.create({ model: "demo", input: "Hi", stream: true });
    for await (const event of stream) {
      if (event.type !== "response.completed") continue;
      assertEquals(await client.responses.retrieve(event.response.id), {
        ...event.response,
        output_text: "",
      } as OpenAI.Responses.Response);
      await ask(client, "More", { previous_response_id: event.response.id });
    }
  });
});

Deno.test("stored responses: cut, failed and cancelled answers are stored up to their end", async () => {
  const reply = (prompt: string) =>
    prompt.includes("Call") ? '<|start|>call weather\n{"city' : "a".repeat(500);
  await withServer({ reply, tokenMs: 1 }, async ({ client }) => {
    const cut = await ask(client, "Hi", { max_output_tokens: 3 });
    assertEquals((await client.responses.retrieve(cut.id)).status, "incomplete");
    let id = "";
    const body = { model: "demo", input: "Call", tools: [tool], stream: true as const };
    const failing = await client.responses.create(body);
    await assertRejects(async () => {
      for await (const event of failing) if (event.type === "response.created") id = event.response.id;
    });
    await until(() => client.responses.retrieve(id).then(() => true, () => false));
    const failed = await client.responses.retrieve(id);
    assertEquals([failed.status, failed.output[0].type, failed.error !== null], [
      "failed",
      "function_call",
      true,
    ]);

    const left = await client.responses.create({ model: "demo", input: "Hi", stream: true });
    for await (const event of left) {
      if (event.type === "response.created") id = event.response.id;
      if (event.type === "response.output_text.delta") break;
    }
    await until(() => client.responses.retrieve(id).then(() => true, () => false));
    const cancelled = await client.responses.retrieve(id);
    assertEquals([cancelled.status, cancelled.output_text.startsWith("a")], ["cancelled", true]);
    const next = await ask(client, "More", { previous_response_id: id, max_output_tokens: 1 });
    assertEquals(next.previous_response_id, id);
  });
});

Deno.test("stored responses: belong to a key's name and survive a restart", async () => {
  const named = (name: string, key: string) => ({ name, digest: digestOf(key) });
  const as = (base: string, apiKey: string) => new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0 });
  await inDataFolder(async (path) => {
    let id = "";
    let item = "";
    const before = new KeyRing([], [named("alice", "a1"), named("bob", "b1")]);
    await withBatches(path, { apiKeys: before }, async ({ base }) => {
      const { id: first, output: [message] } = await ask(as(base, "a1"), "Hi");
      [id, item] = [first, message.id!];
      const bob = as(base, "b1");
      await assertRejects(() => bob.responses.retrieve(id), OpenAI.NotFoundError);
      await assertRejects(() => bob.responses.delete(id), OpenAI.NotFoundError);
      await assertRejects(() => bob.responses.inputItems.list(id), OpenAI.NotFoundError);
      const reference = [{ type: "item_reference" as const, id: item }];
      await assertRejects(() => ask(bob, reference), OpenAI.NotFoundError);
      const error = await assertRejects(() => ask(bob, "a", { previous_response_id: id }));
      assertEquals((error as { code?: string }).code, "previous_response_not_found");
    });
    // A killed process leaves a part of a file.
    await Deno.writeTextFile(`${path}/responses/resp_1.5.partial`, "a");
    const after = new KeyRing([], [named("alice", "a2"), named("bob", "b1")]);
    await withBatches(path, { apiKeys: after }, async ({ base }) => {
      const alice = as(base, "a2");
      assertEquals((await alice.responses.retrieve(id)).output[0].id, item);
      await ask(alice, [{ type: "item_reference", id: item }], { previous_response_id: id });
      await assertRejects(() => as(base, "b1").responses.retrieve(id), OpenAI.NotFoundError);
    });
    const names = (await Array.fromAsync(Deno.readDir(`${path}/responses`))).map(({ name }) => name);
    assertEquals([names.length, names.some((name) => name.endsWith(".partial"))], [2, false]);
  });
});

Deno.test("stored responses: if the disk cannot store a response, it has store false, and the log reports that once", async () => {
  await inDataFolder((path) =>
    withBatches(path, {}, async ({ client, reports }) => {
      await Deno.remove(`${path}/responses`, { recursive: true });
      await Deno.writeTextFile(`${path}/responses`, "");
      for (let i = 0; i < 3; i++) {
        const response = await ask(client, "Hi");
        assertEquals([response.status, (response as unknown as { store: boolean }).store], [
          "completed",
          false,
        ]);
      }
      assertEquals(reports.length, 1);
      assert((reports[0] as Error).message.startsWith("Responses cannot be stored"));
    })
  );
});

Deno.test("stored responses: a server without a store answers with store false", async () => {
  await withServer({ responses: ResponseStore.inMemory({ maxBytes: 0 }) }, async ({ client }) => {
    const response = await ask(client, "Hi", { store: true });
    assertEquals((response as unknown as { store: boolean }).store, false);
    await assertRejects(() => client.responses.retrieve(response.id), OpenAI.NotFoundError);
    await assertRejects(
      () => ask(client, "Hi", { previous_response_id: response.id }),
      OpenAI.BadRequestError,
      "no responses are stored here",
    );
  });
});

Deno.test("stored responses: a conversation of 100 stored responses can be continued", async () => {
  await withServer({ reply: () => "ok", contextLength: 100_000 }, async ({ client, engine }) => {
    let id: string | undefined;
    for (let i = 0; i < 100; i++) ({ id } = await ask(client, `${i}`, { previous_response_id: id ?? null }));
    const { messages } = engine.chatForm.conversations.at(-1)!;
    assertEquals(
      messages.filter(({ role }) => role === "user").map(({ content }) => content),
      [
        ...Array(100).keys(),
      ].map(String),
    );
    const items = await Array.fromAsync(client.responses.inputItems.list(id!, { order: "asc", limit: 100 }));
    assertEquals(items.length, 199);
  });
});
