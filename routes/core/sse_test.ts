import { assert, assertEquals, assertRejects } from "@std/assert";
import { DEFAULT_LIMITS } from "./context.ts";
import { ApiError, toApiError } from "./errors.ts";
import { eventStream } from "./sse.ts";

async function* count(signal: AbortSignal, most = Infinity): AsyncGenerator<{ i: number }> {
  for (let i = 0; i < most; i++) {
    signal.throwIfAborted();
    await Promise.resolve();
    yield { i };
  }
}

function open(limits: Partial<typeof DEFAULT_LIMITS>, most?: number) {
  const abort = new AbortController();
  const chunks = count(abort.signal, most);
  const response = eventStream(chunks, abort, { ...DEFAULT_LIMITS, ...limits }, toApiError);
  return { abort, chunks, response };
}

Deno.test("eventStream: sends one event per chunk, then DONE", async () => {
  const text = await (await open({}, 2).response).text();
  assertEquals(text, 'data: {"i":0}\n\ndata: {"i":1}\n\ndata: [DONE]\n\n');
});

Deno.test("eventStream: chunks wait for the reader, and a stalled reader is cut off", async () => {
  const { abort, chunks, response } = open({ unreadBytes: 1000, stallMs: 20 });
  const reader = (await response).body!.getReader();
  await reader.read();
  const { promise: aborted, resolve } = Promise.withResolvers<void>();
  abort.signal.addEventListener("abort", () => resolve());
  await aborted;
  const unread: number[] = [];
  await assertRejects(async () => {
    while (true) unread.push((await reader.read()).value!.length);
  }, ApiError);
  assert(unread.reduce((a, b) => a + b, 0) < 1100);
  assertEquals(await chunks.next(), { value: undefined, done: true });
});

Deno.test("eventStream: a reader that pauses and continues in time misses nothing", async () => {
  const { response } = open({ unreadBytes: 100, stallMs: 5000 }, 200);
  const body = (await response).body!;
  await new Promise((resolve) => setTimeout(resolve, 10));
  const text = await new Response(body).text();
  assertEquals(text.match(/"i"/g)!.length, 200);
  assert(text.endsWith("data: [DONE]\n\n"));
});

Deno.test("eventStream: a reader that leaves aborts the work", async () => {
  const { abort, chunks, response } = open({ unreadBytes: 100 });
  await (await response).body!.cancel();
  assert(abort.signal.aborted);
  assertEquals(await chunks.next(), { value: undefined, done: true });
});

Deno.test("eventStream: throws early failures and sends later ones as events", async () => {
  async function* fail(first: number): AsyncGenerator<number> {
    yield* Array.from({ length: first }, (_, i) => i);
    throw new ApiError(400, "some_code", "some reason");
  }
  const ask = (first: number) => eventStream(fail(first), new AbortController(), DEFAULT_LIMITS, toApiError);
  await assertRejects(() => ask(0), ApiError, "some reason");
  const events = (await (await ask(1)).text()).trim().split("\n\n");
  assertEquals(events.length, 2);
  assertEquals(JSON.parse(events[1].replace("data: ", "")).error, {
    message: "some reason",
    type: "invalid_request_error",
    param: null,
    code: "some_code",
  });
});

Deno.test("eventStream: named events carry their type, end without DONE, and fail in the API's format", async () => {
  async function* events(fails: boolean): AsyncGenerator<{ type: string }> {
    yield { type: "begin" };
    await Promise.resolve();
    if (fails) throw new ApiError(400, "some_code", "some reason");
  }
  const failure = ({ code }: ApiError) => [{ type: "error", code }, { type: "end" }];
  const ask = async (fails: boolean) => {
    const shape = { named: true, done: false, failure };
    return await (await eventStream(
      events(fails),
      new AbortController(),
      DEFAULT_LIMITS,
      toApiError,
      shape,
    )).text();
  };
  assertEquals(await ask(false), 'event: begin\ndata: {"type":"begin"}\n\n');
  assertEquals(
    await ask(true),
    'event: begin\ndata: {"type":"begin"}\n\n' +
      'event: error\ndata: {"type":"error","code":"some_code"}\n\n' +
      'event: end\ndata: {"type":"end"}\n\n',
  );
});
