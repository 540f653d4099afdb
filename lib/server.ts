import { needDeno, refuse, toCompyError } from "./errors.ts";
import type { Model } from "./model.ts";
import { checkOptions, type OptionTable } from "./options.ts";

/**
 * How a server meets those who ask.
 *
 * ```ts
 * import { createServer, loadModel, type ServerOptions } from "compy";
 *
 * const options: ServerOptions = { apiKeys: ["secret"], openHealth: true, corsOrigins: ["https://app.example"] };
 * await using model = await loadModel();
 * await using server = await createServer(model, options);
 * console.log((await server.fetch(new Request("http://localhost/v1/models"))).status); // 401
 * ```
 */
export interface ServerOptions {
  /** With any, every route wants one of them. */
  readonly apiKeys?: readonly string[];
  /** Host names, without port, that requests may name besides this machine's own. Default "any" where keys are wanted, else none. */
  readonly allowedHosts?: readonly string[] | "any";
  /** Origins, such as `https://app.example`, whose pages may use the API from a browser. Default none. */
  readonly corsOrigins?: readonly string[];
  /** `/health` wants no key. */
  readonly openHealth?: boolean;
  /** Begins every path, such as `/llm`, where the server is not at the root and whoever is before it does not take that away. */
  readonly pathPrefix?: string;
  /** A folder that keeps uploaded files and batches; those that have not ended resume. Without it there are no such routes. Needs Deno. */
  readonly data?: string;
  /** Lines of batches in flight; default as many as the first model runs at once. */
  readonly batchLines?: number;
  /** Bytes that uploaded files may take together. Default no bound. */
  readonly maxStorageBytes?: number;
  /** Told of every failure that nobody foresaw; clients learn nothing of it. */
  readonly onError?: (error: unknown) => void;
}

const SERVER_OPTIONS: OptionTable<ServerOptions> = {
  apiKeys: "texts",
  allowedHosts: "any",
  corsOrigins: "texts",
  openHealth: "switch",
  pathPrefix: "text",
  data: "text",
  batchLines: "number",
  maxStorageBytes: "number",
  onError: "function",
};

/**
 * Where a server listens.
 *
 * ```ts
 * import { createServer, type ListenOptions, loadModel } from "compy";
 *
 * const local: ListenOptions = { port: 0, drainMs: 1000 };
 * await using model = await loadModel();
 * await using server = await createServer(model);
 * console.log(server.listen(local).port > 0);
 * ```
 */
export interface ListenOptions {
  /** Default 127.0.0.1. An address that other machines reach wants a key. */
  readonly host?: string;
  /** Default 0: any free port. */
  readonly port?: number;
  /** The path of a socket to listen at instead, for this user alone. */
  readonly unix?: string;
  /** Connections that may be open at once; default as many as file descriptors allow, up to 1024. */
  readonly maxConnections?: number;
  /** How long requests may go on after the stop, in milliseconds. Default 10,000. */
  readonly drainMs?: number;
}

/**
 * Where a server can be reached.
 *
 * ```ts
 * import { type Address, createServer, loadModel } from "compy";
 *
 * await using model = await loadModel();
 * await using server = await createServer(model);
 * const { url }: Address = server.listen();
 * console.log((await fetch(`${url}/health`)).ok);
 * ```
 */
export interface Address {
  /** Such as `http://127.0.0.1:8080`; empty at a socket. */
  readonly url: string;
  /** The port that it has. */
  readonly port: number;
}

/**
 * The HTTP API over loaded models, which are the caller's: closing the server closes none of them.
 *
 * ```ts
 * import { createServer, loadModel, type Server } from "compy";
 *
 * const isReady = async (server: Server) => (await server.fetch(new Request("http://localhost/ready"))).ok;
 * await using model = await loadModel();
 * await using server = await createServer(model);
 * console.log(await isReady(server));
 * ```
 */
export interface Server extends AsyncDisposable {
  /** Answers one request: to be mounted into another app (`app.mount("/llm", server.fetch)`), for `Deno.serve` and the like. */
  readonly fetch: (request: Request) => Promise<Response>;
  /**
   * Listens at an address until it is closed, with bounds on connections and times. A server listens once. Needs Deno: in Node give
   * `fetch` to a server such as @hono/node-server.
   */
  listen(options?: ListenOptions): Address;
  /** Takes no new work, lets requests that run end within `drainMs`, and stops batches, to be resumed by a later server. */
  close(): Promise<void>;
}

/**
 * The OpenAI-compatible API (and Anthropic's, and llama-server's) over one model or several. Throws CompyError.
 *
 * ```ts
 * import { Hono } from "hono";
 * import { createServer, loadModel } from "compy";
 *
 * await using model = await loadModel();
 * await using llm = await createServer(model);
 * const app = new Hono().mount("/llm", llm.fetch);
 * const answer = await app.request("http://localhost/llm/v1/chat/completions", {
 *   method: "POST",
 *   headers: { "content-type": "application/json" },
 *   body: JSON.stringify({ messages: [{ role: "user", content: "Who are you?" }], temperature: 0 }),
 * });
 * console.log((await answer.json()).choices[0].message.content);
 * ```
 */
export async function createServer(
  models: Model | readonly Model[],
  options: ServerOptions = {},
): Promise<Server> {
  checkOptions(options, SERVER_OPTIONS);
  if (options.data !== undefined) needDeno("data", "leave it out to serve without files and batches");
  const all = Array.isArray(models) ? models as readonly Model[] : [models as Model];
  const ids = all.map(({ info }) => info.id);
  const twice = ids.find((id, i) => ids.indexOf(id) !== i);
  if (all.length === 0) refuse("models", "must be a model, or an array of at least one", []);
  if (twice !== undefined) refuse("models", "must have different ids; load one with another `id`", twice);
  // What only servers need is read when there is one: the rest of the library begins faster, and runs where there is no network.
  const { openServer } = await import("./serving.ts");
  try {
    return await openServer(all, options);
  } catch (error) {
    throw toCompyError(error);
  }
}
