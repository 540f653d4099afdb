import OpenAI from "openai";
import { serveHttp, type ServeOptions } from "./serve.ts";
import { FakeEngine, type FakeEngineOptions } from "./testing.ts";

export interface TestServer {
  readonly engine: FakeEngine;
  /** Address of the test server: `http://127.0.0.1:PORT`. */
  readonly base: string;
  readonly client: OpenAI;
  readonly errors: unknown[];
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>;
}

/** Runs `test` against a real server on a free port over a fake engine. */
export async function withServer(
  options: FakeEngineOptions & ServeOptions,
  test: (server: TestServer) => Promise<void>,
): Promise<void> {
  const engine = new FakeEngine(options);
  const errors: unknown[] = [];
  const onError = (error: unknown) => errors.push(error);
  const server = serveHttp(engine, { signals: false, onError, ...options });
  const base = `http://127.0.0.1:${server.port}`;
  const apiKey = (options.apiKeys as string[] | undefined)?.[0] ?? "unused";
  const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0 });
  const post = (path: string, body: unknown, init: RequestInit = {}) => {
    const headers = { "content-type": "application/json", ...init.headers };
    return fetch(base + path, { method: "POST", body: JSON.stringify(body), ...init, headers });
  };
  try {
    await test({ engine, base, client, errors, post });
  } finally {
    await server.shutdown(0);
  }
}

/** Waits until `condition` holds; throws after two seconds. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = performance.now() + 2000; !await condition();) {
    if (performance.now() > end) throw new Error("It did not happen within two seconds");
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
