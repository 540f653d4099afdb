import type { Hono } from "hono";
import { refuse, toCompyError } from "./errors.ts";
import type { Model } from "./model.ts";
import { checkOptions, type OptionTable } from "./options.ts";

/** How a server meets those who ask. */
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
  /** A folder that keeps uploaded files and batches; those that have not ended resume. Without it there are no such routes. */
  readonly data?: string;
  /** Lines of batches in flight; default 4. */
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

/** Where a server listens. */
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

/** Where a server can be reached. */
export interface Address {
  /** Such as `http://127.0.0.1:8080`; empty at a socket. */
  readonly url: string;
  /** The port that it has. */
  readonly port: number;
}

/** The HTTP API over loaded models, which are the caller's: closing the server closes none of them. */
export interface Server extends AsyncDisposable {
  /** The routes, to be mounted into an app of one's own. */
  readonly app: Hono;
  /** Answers one request: for `Deno.serve`, for `export default`, for tests. */
  fetch(request: Request): Promise<Response>;
  /** Listens at an address until it is closed, with bounds on connections and times. A server listens once. */
  listen(options?: ListenOptions): Address;
  /** Takes no new work, lets requests that run end within `drainMs`, and stops batches, to be resumed by a later server. */
  close(): Promise<void>;
}

/** The OpenAI-compatible API (and Anthropic's, and llama-server's) over one model or several. Throws CompyError. */
export async function createServer(
  models: Model | readonly Model[],
  options: ServerOptions = {},
): Promise<Server> {
  checkOptions(options, SERVER_OPTIONS);
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
