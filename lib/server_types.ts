/**
 * Options of a server: its allowed clients, and its folder for files.
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
  /** API keys. If there are any, every route requires one of them. */
  readonly apiKeys?: readonly string[];
  /**
   * Host names, without port, that requests may name besides this machine's own. The default is "any" if there are
   * API keys, otherwise no other name.
   */
  readonly allowedHosts?: readonly string[] | "any";
  /** Origins, such as `https://app.example`, whose pages may call the API from a browser. Default none. */
  readonly corsOrigins?: readonly string[];
  /** Whether `/health` works without a key. */
  readonly openHealth?: boolean;
  /** Prefix of every path, such as `/llm`, for a proxy that does not remove it. */
  readonly pathPrefix?: string;
  /** Whether parameters that an endpoint does not support are refused; by default a header warns of these parameters. */
  readonly strictParameters?: boolean;
  /**
   * Folder for uploaded files, batches and stored answers. Unfinished batches resume. Without it, the server has no
   * files and batches. Needs Deno.
   */
  readonly data?: string;
  /**
   * Maximum number of batch lines in progress; default 1.5 times the number of requests that the first model runs
   * together.
   */
  readonly batchLines?: number;
  /** Maximum bytes of all uploaded files together. Default unlimited. */
  readonly maxStorageBytes?: number;
  /**
   * Maximum bytes of all stored answers of `/v1/responses`: 512 MiB in the folder `data`, or 64 MiB in memory without
   * one. The oldest ones are deleted. 0 stores none.
   */
  readonly maxResponseBytes?: number;
  /** Receives every unexpected failure. Clients do not see its reason. */
  readonly onError?: (error: unknown) => void;
}

/**
 * Address and limits of a listening server.
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
  /** Address to listen at. Default 127.0.0.1. Addresses that other machines can reach require an API key. */
  readonly host?: string;
  /** Port to listen at. Default 0, which means any free port. */
  readonly port?: number;
  /** Path of a Unix socket to listen at instead of a port. Only this user can open it. */
  readonly unix?: string;
  /** Maximum open connections; by default limited by the file descriptors, at most 1024. */
  readonly maxConnections?: number;
  /** Milliseconds for which running requests may continue after a stop. Default 10,000. */
  readonly drainMs?: number;
}

/**
 * The address of a listening server.
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
  /** URL of the server, for example `http://127.0.0.1:8080`; empty for a Unix socket. */
  readonly url: string;
  /** Port of the server. */
  readonly port: number;
}

/**
 * The HTTP API over loaded models. The caller owns the models: closing the server does not close them.
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
  /** Answers one request. Mount it in another app (`app.mount("/llm", server.fetch)`) or pass it to `Deno.serve`. */
  readonly fetch: (request: Request) => Promise<Response>;
  /**
   * Listens until the server is closed, with limits on connections and times. Call it once. Needs Deno: in Node, pass
   * `fetch` to a server such as @hono/node-server.
   */
  listen(options?: ListenOptions): Address;
  /** Refuses new requests, gives running ones `drainMs` to end, and stops batches, which a later server resumes. */
  close(): Promise<void>;
}
