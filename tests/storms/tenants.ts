/* Campaigns in which one API key, or one line of a job, burdens others. */
import { assert, assertEquals } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { createGrammars } from "../../engine/grammar/grammars.ts";
import { type Constraint, ConstraintError } from "../../engine/grammar/types.ts";
import { bpeMetadata } from "../../engine/tokenizer/testing.ts";
import { TOKEN_TYPE } from "../../engine/tokenizer/token_types.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { type LiveServer, withLiveServer } from "../../testing/live_server.ts";
import { Random } from "../../testing/random.ts";
import { type Figures, quantile, type Scenario, type Storm } from "./storm.ts";

const FLOODING = { requests: 8, n: 8, max_tokens: 400 };
const PROMPT_WORDS = 50;
const TOKENS = 5;
const FLOODS = 4;

/** Runs `test` against a server with three keys. */
async function withKeys(test: (server: LiveServer) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile({ suffix: ".json" });
  try {
    const keys = ["a", "b", "c"].map((name) => ({ name, key: `key-${name}` }));
    await Deno.writeTextFile(path, JSON.stringify({ keys }));
    await withLiveServer(["--api-keys", path, "--open-health"], test);
  } finally {
    await Deno.remove(path);
  }
}

function complete(url: string, key: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  return fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { authorization: `Bearer key-${key}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
}

/** Milliseconds to the first token, and of each later one. */
interface Times {
  readonly first: number;
  readonly step: number;
}

async function timeTokens(url: string, random: Random): Promise<Times> {
  const prompt = `Tell me ${random.word()}${" more".repeat(PROMPT_WORDS)}`;
  const start = performance.now();
  const response = await complete(url, "b", { prompt, max_tokens: TOKENS, stream: true, ignore_eos: true });
  assertEquals(response.status, 200);
  const reader = response.body!.getReader();
  await reader.read();
  const first = performance.now() - start;
  while (!(await reader.read()).done);
  return { first, step: (performance.now() - start - first) / (TOKENS - 1) };
}

/** Sends requests with one API key until the returned function is called. */
function flood(url: string): () => Promise<void> {
  const stop = new AbortController();
  const { requests, ...asked } = FLOODING;
  const running = Array.from({ length: requests }, async (_, i) => {
    const body = { ...asked, prompt: `x${i} `.repeat(20), ignore_eos: true, temperature: 1 };
    while (!stop.signal.aborted) {
      try {
        const response = await complete(url, "a", body, stop.signal);
        const text = await response.text();
        assertEquals(response.status, 200, text);
      } catch (error) {
        if (!stop.signal.aborted) throw error;
      }
    }
  });
  return async () => {
    stop.abort();
    await Promise.all(running);
  };
}

/** One key floods, in turns with pauses; another key's time to first token is compared with that in the pauses. */
async function keyFlood({ count, seed }: Storm): Promise<Figures> {
  const random = new Random(seed);
  const alone: Times[] = [];
  const flooded: Times[] = [];
  await withKeys(async ({ url }) => {
    const sample = async (times: Times[]) => {
      for (let i = 0; i < count / FLOODS; i++) {
        times.push(await timeTokens(url, random));
        await delay(50);
      }
    };
    await timeTokens(url, random);
    for (let turn = 0; turn < FLOODS; turn++) {
      await sample(alone);
      const stop = flood(url);
      await delay(2000);
      await sample(flooded);
      await stop();
    }
  });
  const median = (times: Times[], what: keyof Times) => quantile(times.map((time) => time[what]), 0.5);
  const [aloneMs, floodedMs, stepMs] = [
    median(alone, "first"),
    median(flooded, "first"),
    median(flooded, "step"),
  ];
  return {
    alone_ms: aloneMs,
    flooded_ms: floodedMs,
    step_ms: stepMs,
    of_allowed: floodedMs / (2 * aloneMs + stepMs),
  };
}

const MB = 2 ** 20;
const BODY_SECONDS = 15;

/** Connections of two keys send bodies of up to 8 MiB without the last bytes; a third key asks meanwhile. */
async function unfinishedBodies({ count, seed }: Storm): Promise<Figures> {
  const random = new Random(seed);
  let figures: Figures = {};
  await withKeys(async (server) => {
    const { url } = server;
    const good = () => complete(url, "c", { prompt: "Hi", max_tokens: 4 });
    await (await good()).text();
    const before = await server.resident();
    const open: Deno.TcpConn[] = [];
    const sent = Array.from({ length: count }, (_, i) => {
      const bytes = i % 4 === 3 ? 1 + random.below(8 * MB) : 8 * MB;
      return sendUnfinished(url, "ab"[i % 2], bytes, 1 + random.below(100), open).catch(() => {});
    });
    const health: number[] = [];
    let peak = before;
    let answered = 0;
    for (const end = performance.now() + 1000 * BODY_SECONDS; performance.now() < end; await delay(100)) {
      const start = performance.now();
      assertEquals((await (await fetch(`${url}/health`)).json()).status, "ok");
      health.push(performance.now() - start);
      const response = await good();
      assertEquals(response.status, 200, await response.text());
      answered++;
      peak = Math.max(peak, await server.resident());
    }
    for (const connection of open) connection.close();
    await Promise.all(sent);
    figures = {
      grown_mb: (peak - before) / MB,
      answered,
      health_p99_ms: quantile(health, 0.99),
    };
  });
  return figures;
}

async function sendUnfinished(
  url: string,
  key: string,
  bytes: number,
  missing: number,
  open: Deno.TcpConn[],
): Promise<void> {
  const connection = await Deno.connect({ hostname: "127.0.0.1", port: Number(new URL(url).port) });
  open.push(connection);
  const head = `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer key-${key}\r\n` +
    `content-type: application/json\r\ncontent-length: ${bytes + missing}\r\n\r\n`;
  await connection.write(new TextEncoder().encode(head));
  const spaces = new Uint8Array(1 << 16).fill(32);
  for (let left = bytes; left > 0;) left -= await connection.write(spaces.subarray(0, left));
}

const VOCABULARY = 130_000;
const LETTERS = 12;

/** Random words: masks of an ambiguous grammar are expensive over a large vocabulary. */
function largeVocabulary(random: Random) {
  const words = new Set<string>();
  while (words.size < VOCABULARY) {
    const letters = Array.from({ length: 2 + random.below(LETTERS) }, () => 97 + random.below(26));
    words.add(String.fromCharCode(...letters));
  }
  const extra = [...words].map((word) => [word, TOKEN_TYPE.NORMAL] as const);
  const end = ["</s>", TOKEN_TYPE.CONTROL] as const;
  const values = { "ggml.eos_token_id": 256 };
  return createTokenizer(bpeMetadata({ extra: [end, ...extra], values }));
}

const ambiguous = (i: number): Constraint => ({
  kind: "gbnf",
  grammar: `root ::= "line ${i} " e\ne ::= [a-z] e e e | [a-z] e | [a-z]`,
});
const cheap = (i: number): Constraint => ({
  kind: "json_schema",
  schema: { type: "object", properties: { [`name${i}`]: { type: "string" } } },
});

/** Lines of one job, every third with an ambiguous grammar of its own; another key asks for a schema meanwhile. */
async function ambiguousGrammars({ count, seed }: Storm): Promise<Figures> {
  const grammars = createGrammars(largeVocabulary(new Random(seed)));
  await grammars.compile(cheap(-1));
  const start = performance.now();
  const lines = Array.from({ length: count }, (_, i) => {
    const line = i + 1000 * seed;
    return grammars.compile((i % 3 === 0 ? ambiguous : cheap)(line), { tenant: "a", batch: true });
  });
  const settled = Promise.allSettled(lines);
  await grammars.compile(cheap(1e6), { tenant: "b", batch: false });
  const otherKeyMs = performance.now() - start;
  const results = await settled;
  const refused = results.filter(({ status }, i) => status === "rejected" && i % 3 === 0);
  for (const { reason } of refused as PromiseRejectedResult[]) {
    assert(reason instanceof ConstraintError, reason);
  }
  grammars.close();
  return {
    good_failed: results.filter(({ status }, i) => status === "rejected" && i % 3 !== 0).length,
    refused: refused.length,
    other_key_ms: otherKeyMs,
    all_ms: performance.now() - start,
  };
}

export const TENANTS: Readonly<Record<string, Scenario>> = {
  "key-flood": keyFlood,
  "unfinished-bodies": unfinishedBodies,
  "ambiguous-grammars": ambiguousGrammars,
};
