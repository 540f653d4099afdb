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
