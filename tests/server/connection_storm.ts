import { assertEquals } from "@std/assert";
import { chatLine, createBatch, linesOf, upload } from "../../routes/testing_batches.ts";
import type { LiveServer } from "../../testing/live_server.ts";
import { Random } from "../../testing/random.ts";

/*
 * Waves of misbehaving clients beside well-behaved ones. No request of a well-behaved client may be lost or answered
 * twice.
 */

export interface StormOptions {
  /** Number of bad connections in total, and open at once. */
  readonly connections: number;
  readonly wave: number;
  /** How long each wave lasts, in ms. */
  readonly waveMs: number;
  readonly seed: number;
}

export interface StormReport {
  readonly connections: number;
  /** Answered requests of well-behaved clients. */
  readonly answered: number;
  /** Number of 429 responses to well-behaved clients. */
  readonly deferred: number;
  /** Sorted latencies of /health on separate connections, in ms. */
  readonly health: readonly number[];
  readonly batchLines: number;
  readonly descriptors: { readonly before: number; readonly after: number };
}

const GOOD_CLIENTS = 4;
const BATCH_LINES = 60;
const TICK_MS = 50;
const OWN_STALL_MS = 500;

/** Time when this process was last blocked for long. */
let heldUpAt = -Infinity;

/** Watches this process until the returned function is called. */
function watchStalls(): () => void {
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    if (now - last > OWN_STALL_MS) heldUpAt = now;
    last = now;
  }, TICK_MS);
  return () => clearInterval(timer);
}
const QUESTIONS = ["What is a fern?", "Once upon a time", "Tell me a story", "Hi"];

const encoder = new TextEncoder();
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, Math.max(ms, 0)));
const JSON_TYPE = "content-type: application/json\r\n";
const FORM_TYPE = "content-type: multipart/form-data; boundary=b\r\n";
const FORM = '--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n{"custom_id": "a"';

type Bad = (tcp: Deno.TcpConn, until: number, random: Random) => Promise<unknown>;

function post(path: string, type: string, length: number, body: string): string {
  return `POST ${path} HTTP/1.1\r\nhost: localhost\r\n${type}content-length: ${length}\r\n\r\n${body}`;
}

function stream(tokens: number): string {
  const messages = [{ role: "user", content: "Tell me a story" }];
  const body = { model: "demo", stream: true, max_tokens: tokens, ignore_eos: true, messages };
  const text = JSON.stringify(body);
  return post("/v1/chat/completions", JSON_TYPE, text.length, text);
}

async function write(tcp: Deno.TcpConn, text: string): Promise<void> {
  const bytes = encoder.encode(text);
  for (let sent = 0; sent < bytes.length;) sent += await tcp.write(bytes.subarray(sent));
}

/** Sends the start, then occasional bytes. */
function dripping(start: string): Bad {
  return async (tcp, until, random) => {
    await write(tcp, start);
    for (; performance.now() < until; await sleep(50 + random.below(300))) await write(tcp, "a");
  };
}

/** Sends the text, and then nothing. */
function stalling(text: string): Bad {
  return async (tcp, until) => {
    await write(tcp, text);
    await sleep(until - performance.now());
  };
}

const BAD: Record<string, Bad> = {
  silent: stalling(""),
  "half a head": stalling("GET /health HTTP/1.1\r\nhost: loc"),
  "a slow head": dripping("GET /health HTTP/1.1\r\nhost: localhost\r\nx: "),
  "a slow body": dripping(post("/v1/chat/completions", JSON_TYPE, 100_000, '{"model":"')),
  "a slow upload": dripping(post("/v1/files", FORM_TYPE, 100_000, FORM)),
  "idle after an answer": stalling("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"),
  "requests ahead, answers unread": stalling("GET /doc HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(20)),
  "no request": stalling("\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"),
  "half closed in a body": async (tcp, until) => {
    await write(tcp, post("/tokenize", JSON_TYPE, 100, '{"content"'));
    await tcp.closeWrite();
    await sleep(until - performance.now());
  },
  "left in an upload": async (tcp, _, random) => {
    await write(tcp, post("/v1/files", FORM_TYPE, 100_000, FORM + "x".repeat(random.below(5000))));
    await sleep(random.below(200));
  },
  "a stream left": async (tcp, _, random) => {
    await write(tcp, stream(400));
    await sleep(random.below(300));
  },
  "a stream unread": stalling(stream(20)),
};

/** One bad connection, closed at `until` at the latest. Any reaction of the server is fine. */
async function misbehave(server: LiveServer, until: number, random: Random): Promise<void> {
  const { hostname, port } = new URL(server.url);
  // Streams take the engine's few places, which all clients share.
  const kinds = Object.values(BAD);
  const bad = random.below(20) === 0
    ? kinds.at(-1 - random.below(2))!
    : kinds[random.below(kinds.length - 2)];
  try {
    const tcp = await Deno.connect({ hostname, port: Number(port) });
    const timer = setTimeout(() => close(tcp), Math.max(until - performance.now(), 0));
    try {
      await bad(tcp, until, random);
    } finally {
      clearTimeout(timer);
      close(tcp);
    }
  } catch {
    // The connection was refused, reset or closed.
  }
}

function close(tcp: Deno.TcpConn): void {
  try {
    tcp.close();
  } catch {
    // The connection is already closed.
  }
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

/**
 * Sends a request on a new connection, so that closing an idle one cannot lose it. If this process was blocked so long
 * that the server sees a silent connection, the request is sent again.
 */
async function ask(server: LiveServer, path: string, body?: unknown): Promise<Answer> {
  const { hostname, port } = new URL(server.url);
  const started = performance.now();
  const tcp = await Deno.connect({ hostname, port: Number(port) });
  const head = "host: localhost\r\nconnection: close\r\n";
  const json = JSON.stringify(body) ?? "";
  const sized = `${JSON_TYPE}content-length: ${encoder.encode(json).length}\r\n\r\n${json}`;
  const request = body === undefined
    ? `GET ${path} HTTP/1.1\r\n${head}\r\n`
    : `POST ${path} HTTP/1.1\r\n${head}${sized}`;
  await write(tcp, request);
  const answer = await new Response(tcp.readable).text();
  const status = Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0);
  if (status !== 0) return { status, text: answer.slice(answer.indexOf("\r\n\r\n") + 4) };
  await sleep(2 * TICK_MS);
  if (heldUpAt > started) return await ask(server, path, body);
  throw new Error(`A request was lost that was sent within ${(performance.now() - started).toFixed(0)} ms`);
}

class GoodClients {
  answered = 0;
  deferred = 0;
  readonly health: number[] = [];
  readonly #expected = new Map<string, string>();
  #stopped = false;

  constructor(private readonly server: LiveServer) {}

  /** Records the undisturbed answers. */
  async learn(): Promise<void> {
    for (const question of QUESTIONS) this.#expected.set(question, await this.#answer(question));
    this.answered = 0;
  }

  run(): Promise<unknown> {
    const chats = Array.from({ length: GOOD_CLIENTS }, async (_, i) => {
      for (let n = i; !this.#stopped; n++) {
        const question = QUESTIONS[n % QUESTIONS.length];
        assertEquals(await this.#answer(question), this.#expected.get(question), question);
      }
    });
    return Promise.all([...chats, this.#watchHealth()]);
  }

  stop(): void {
    this.#stopped = true;
  }

  async #answer(content: string): Promise<string> {
    const messages = [{ role: "user", content }];
    const body = { model: "demo", messages, max_tokens: 12, temperature: 0 };
    for (;;) {
      const { status, text } = await ask(this.server, "/v1/chat/completions", body);
      if (status === 200) {
        this.answered++;
        return /"content":"((?:[^"\\]|\\.)*)"/.exec(text)![1];
      }
      assertEquals(status, 429, text);
      this.deferred++;
      await sleep(200);
    }
  }

  async #watchHealth(): Promise<void> {
    while (!this.#stopped) {
      const started = performance.now();
      assertEquals((await ask(this.server, "/health")).status, 200);
      this.health.push(performance.now() - started);
      await sleep(20);
    }
  }
}

/** Throws if a well-behaved client or a batch loses an answer or gets a different one. */
export async function storm(server: LiveServer, options: StormOptions): Promise<StormReport> {
  const { connections, wave, waveMs, seed } = options;
  const stopWatching = watchStalls();
  const good = new GoodClients(server);
  await good.learn();
  const ids = Array.from({ length: BATCH_LINES }, (_, n) => `q${n}`);
  const lines = ids.map((id) => chatLine(id, { max_tokens: 4, temperature: 0 }));
  const input = await upload(server.client, lines);
  await settled(server);
  const before = await server.descriptors();

  const { id } = await createBatch(server.client, input);
  const running = good.run();
  let failure: unknown;
  running.catch((error) => failure = error);
  const random = new Random(seed);
  for (let done = 0; done < connections && failure === undefined; done += wave) {
    const until = performance.now() + waveMs;
    const count = Math.min(wave, connections - done);
    await Promise.all(
      Array.from({ length: count }, () => misbehave(server, until, new Random(random.word()))),
    );
  }
  good.stop();
  await running.finally(stopWatching);
  await batchEnded(server, id, ids);
  await settled(server);
  const { answered, deferred, health } = good;
  const descriptors = { before, after: await server.descriptors() };
  return {
    connections,
    answered,
    deferred,
    health: health.toSorted((a, b) => a - b),
    batchLines: ids.length,
    descriptors,
  };
}

/** Checks that each line of the batch was answered once. */
async function batchEnded({ client }: LiveServer, id: string, ids: readonly string[]): Promise<void> {
  for (const end = performance.now() + 60_000;;) {
    const batch = await client.batches.retrieve(id);
    if (batch.status === "completed") {
      const answers = await linesOf(client, batch.output_file_id);
      assertEquals(answers.map(({ custom_id }) => custom_id).sort(), [...ids].sort());
      return;
    }
    if (performance.now() > end) throw new Error(`The batch is ${JSON.stringify(batch)}`);
    await sleep(100);
  }
}

/** Waits until nothing runs and all closed connections are gone. */
async function settled(server: LiveServer): Promise<void> {
  await server.idle();
  for (let last = 0, now = await server.descriptors(); now !== last;) {
    await sleep(2500); // longer than the server reads after its last answer
    [last, now] = [now, await server.descriptors()];
  }
}
