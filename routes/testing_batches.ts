import { TEST_LIMITS } from "../jobs/testing.ts";
import { BatchService, type ServiceOptions } from "../jobs/service/service.ts";
import type { Models } from "../engine/mod.ts";
import { execute } from "./execute.ts";
import { serveHttp, type ServeOptions } from "./serve.ts";
import { FakeEngine, type FakeEngineOptions } from "./testing.ts";
import OpenAI, { toFile } from "openai";

export interface BatchServer {
  readonly base: string;
  readonly client: OpenAI;
  readonly engine: FakeEngine;
  readonly service: BatchService;
  /** Reports for the operator. */
  readonly reports: unknown[];
}

type Options = FakeEngineOptions & ServeOptions & Partial<ServiceOptions> & {
  /** Models to serve instead of the fake engine. */
  readonly served?: Models;
};

/** Runs a test with its own data folder, which is removed afterwards. */
export async function inDataFolder(test: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempDir({ prefix: "batches-" });
  try {
    await test(path);
  } finally {
    await Deno.remove(path, { recursive: true });
  }
}

/** Runs `test` against a real server over a fake engine, with files and batches in the folder. */
export async function withBatches(
  path: string,
  options: Options,
  test: (server: BatchServer) => Promise<void>,
): Promise<void> {
  const engine = new FakeEngine(options);
  const reports: unknown[] = [];
  const report = (error: unknown) => reports.push(error);
  const service = await BatchService.open({
    path,
    parallel: 4,
    lineLimits: TEST_LIMITS,
    settings: { model: "demo" },
    execute: (request) => execute(engine, { ...request, cacheSalt: request.owner || undefined }),
    report,
    ...options,
  });
  const server = serveHttp(options.served ?? engine, {
    signals: false,
    onError: report,
    batches: service,
    ...options,
  });
  const base = `http://127.0.0.1:${server.port}`;
  const client = new OpenAI({
    baseURL: `${base}/v1`,
    apiKey: (options.apiKeys as string[] | undefined)?.[0] ?? "unused",
    maxRetries: 0,
  });
  try {
    await test({ base, client, engine, service, reports });
  } finally {
    await server.shutdown(0);
  }
}

/** Returns a batch line with a chat request; `body` overrides its fields. */
export function chatLine(id: string, body: Record<string, unknown> = {}): string {
  return JSON.stringify({
    custom_id: id,
    method: "POST",
    url: "/v1/chat/completions",
    body: { model: "demo", messages: [{ role: "user", content: id }], ...body },
  });
}

export async function upload(client: OpenAI, lines: readonly string[], name = "in.jsonl"): Promise<string> {
  const file = await toFile(new TextEncoder().encode(lines.join("\n")), name);
  return (await client.files.create({ file, purpose: "batch" })).id;
}

export function createBatch(client: OpenAI, input: string, more: Record<string, unknown> = {}) {
  return client.batches.create({
    input_file_id: input,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
    ...more,
  });
}

/** Polls until the batch has one of the states; throws after ten seconds. */
export async function waitFor(client: OpenAI, id: string, ...states: string[]) {
  for (const end = performance.now() + 10_000;;) {
    const batch = await client.batches.retrieve(id);
    if (states.includes(batch.status)) return batch;
    if (performance.now() > end) throw new Error(`After ten seconds the batch is ${JSON.stringify(batch)}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

// deno-lint-ignore no-explicit-any -- answers are what the tests are about
export async function linesOf(client: OpenAI, file: string | null | undefined): Promise<any[]> {
  if (!file) return [];
  const text = await (await client.files.content(file)).text();
  return text.trimEnd().split("\n").map((line) => JSON.parse(line));
}
