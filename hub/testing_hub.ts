import { sha256 } from "./testing_models.ts";

/** A fault that the test hub puts into a response. */
export type Fault =
  | { readonly kind: "status"; readonly status: number; readonly retryAfter?: string }
  /** The connection breaks after this many bytes of the body. */
  | { readonly kind: "drop"; readonly after: number }
  /** The body stalls after this many bytes. */
  | { readonly kind: "stall"; readonly after: number }
  /** The hub sends the whole file instead of the requested range. */
  | { readonly kind: "ignore range" }
  /** The hub sends a shorter range than requested, with a matching header. */
  | { readonly kind: "short range" }
  /** The hub sends a different range than requested, with a matching header. */
  | { readonly kind: "other range" }
  /** The hub states a wrong total length. */
  | { readonly kind: "wrong length"; readonly by: number }
  /** The hub changes one byte of the body. */
  | { readonly kind: "corrupt" }
  | { readonly kind: "encoding" }
  | { readonly kind: "page" }
  | { readonly kind: "redirect"; readonly to: string };

/** A request, from which a test decides its fault. */
export interface SeenRequest {
  readonly host: "hub" | "cdn";
  readonly path: string;
  readonly range: readonly [start: number, end: number] | undefined;
  readonly authorization: string | null;
  /** Sequential number of the request on this hub, from 0. */
  readonly number: number;
}

export interface TestHubOptions {
  /** Files by path, for each repository "OWNER/REPO". */
  readonly repositories: Record<string, Record<string, Uint8Array<ArrayBuffer>>>;
  /** Returns the fault of a request; by default none. */
  readonly fault?: (request: SeenRequest) => Fault | undefined;
  /** The token that readers must send, if any. */
  readonly token?: string;
  /** Changes the listing of a repository. */
  readonly listing?: (listing: Listing) => unknown;
  /** Milliseconds to wait before each 64 KiB. */
  readonly delayMs?: number;
  /** Whether answers lack ETag and dates. */
  readonly nameless?: boolean;
}

interface Listing {
  sha: string;
  siblings: {
    rfilename: string;
    size?: number;
    lfs?: { sha256: string; size: number; pointerSize: number };
  }[];
}

const CHUNK = 64 * 1024;

/** A local hub and CDN with different names, which misbehave on demand. */
export class TestHub implements AsyncDisposable {
  readonly requests: SeenRequest[] = [];
  /** Number of file bytes given to the network. */
  sent = 0;
  /** Maximum of `sent`, which a test may raise. */
  most = Infinity;
  readonly #options: TestHubOptions;
  readonly #hub: Deno.HttpServer<Deno.NetAddr>;
  readonly #cdn: Deno.HttpServer<Deno.NetAddr>;
  readonly #files: Map<string, Uint8Array<ArrayBuffer>>;
  readonly #hashes = new WeakMap<Uint8Array, string>();

  constructor(options: TestHubOptions) {
    this.#options = options;
    this.#files = new Map(
      Object.entries(options.repositories).flatMap(([repo, files]) =>
        Object.entries(files).map(([path, bytes]) => [`${repo}/${path}`, bytes] as const)
      ),
    );
    const serve = (host: "hub" | "cdn") =>
      Deno.serve(
        { hostname: "127.0.0.1", port: 0, onListen: () => {}, onError: () => new Response(null) },
        (request) => this.#answer(host, request),
      );
    this.#hub = serve("hub");
    this.#cdn = serve("cdn");
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.#hub.addr.port}`;
  }

  get cdn(): string {
    return `http://localhost:${this.#cdn.addr.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#hub.shutdown(), this.#cdn.shutdown()]);
  }

  /** Returns a file's current contents. */
  file(file: string): Uint8Array<ArrayBuffer> | undefined {
    return this.#files.get(file);
  }

  /** Replaces a file's contents. */
  change(file: string, bytes: Uint8Array<ArrayBuffer>): void {
    this.#files.set(file, bytes);
  }

  #answer(host: "hub" | "cdn", request: Request): Response {
    const url = new URL(request.url);
    const path = decodeURIComponent(url.pathname).slice(1);
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.get("range") ?? "");
    const seen: SeenRequest = {
      host,
      path,
      range: range ? [Number(range[1]), Number(range[2]) + 1] : undefined,
      authorization: request.headers.get("authorization"),
      number: this.requests.length,
    };
    this.requests.push(seen);
    const fault = this.#options.fault?.(seen);
    if (fault?.kind === "status") {
      const headers = fault.retryAfter === undefined ? undefined : { "retry-after": fault.retryAfter };
      return new Response("busy", { status: fault.status, headers });
    }
    if (fault?.kind === "redirect") {
      return new Response(null, { status: 302, headers: { location: fault.to } });
    }
    if (fault?.kind === "page") {
      return new Response("<html>Please log in</html>", { headers: { "content-type": "text/html" } });
    }
    const { token } = this.#options;
    if (host === "hub" && token !== undefined && seen.authorization !== `Bearer ${token}`) {
      return new Response("who are you", { status: 401 });
    }
    const listed = /^api\/models\/([^/]+\/[^/]+)/.exec(path);
    if (listed) return this.#list(listed[1]);
    const file = path.replace(/\/resolve\/[^/]+\//, "/");
    const bytes = this.#files.get(file);
    if (!bytes) return new Response("nothing here", { status: 404 });
    if (host === "hub" && file !== path) {
      const location = `${this.cdn}/${encodeURI(file)}?signature=${crypto.randomUUID()}`;
      return new Response(null, {
        status: 302,
        headers: { location, "x-linked-etag": `"${this.#hash(bytes)}"` },
      });
    }
    return this.#send(bytes, seen.range, fault);
  }

  #hash(bytes: Uint8Array): string {
    const known = this.#hashes.get(bytes) ?? sha256(bytes);
    this.#hashes.set(bytes, known);
    return known;
  }

  #list(repo: string): Response {
    const own = [...this.#files].filter(([file]) => file.startsWith(`${repo}/`));
    if (own.length === 0) return new Response("no such repository", { status: 404 });
    const siblings = own.map(([file, bytes]) => ({
      rfilename: file.slice(repo.length + 1),
      size: bytes.length,
      lfs: { sha256: this.#hash(bytes), size: bytes.length, pointerSize: 134 },
    }));
    const sha = sha256(new TextEncoder().encode(siblings.map(({ lfs }) => lfs.sha256).join())).slice(0, 40);
    const listing: Listing = { sha, siblings };
    return Response.json(this.#options.listing?.(listing) ?? listing);
  }

  #send(bytes: Uint8Array<ArrayBuffer>, range: SeenRequest["range"], fault: Fault | undefined): Response {
    const headers = new Headers({ "accept-ranges": "bytes" });
    if (!this.#options.nameless) headers.set("etag", `"${this.#hash(bytes).slice(0, 32)}"`);
    let [start, end] = range ?? [0, bytes.length];
    if (start >= bytes.length) return new Response(null, { status: 416 });
    end = Math.min(end, bytes.length);
    const partial = range !== undefined && fault?.kind !== "ignore range";
    if (!partial) [start, end] = [0, bytes.length];
    if (fault?.kind === "short range") end = start + Math.ceil((end - start) / 2);
    if (fault?.kind === "other range") [start, end] = [start + 1, Math.min(end + 1, bytes.length)];
    const total = bytes.length + (fault?.kind === "wrong length" ? fault.by : 0);
    if (partial) headers.set("content-range", `bytes ${start}-${end - 1}/${total}`);
    const cut = partial || fault?.kind !== "wrong length" ? end - start : total;
    headers.set("content-length", String(cut));
    if (fault?.kind === "encoding") headers.set("content-encoding", "br");
    let body: Uint8Array<ArrayBuffer> = bytes.subarray(start, end);
    if (fault?.kind === "corrupt") {
      body = body.slice();
      body[Math.floor(body.length / 2)] ^= 0x40;
    }
    return new Response(this.#stream(body, fault), { status: partial ? 206 : 200, headers });
  }

  #stream(body: Uint8Array<ArrayBuffer>, fault: Fault | undefined): ReadableStream<Uint8Array> {
    const { delayMs } = this.#options;
    const stop = fault?.kind === "drop" || fault?.kind === "stall"
      ? Math.min(fault.after, body.length)
      : body.length;
    let at = 0;
    let gone = false;
    return new ReadableStream({
      cancel: () => void (gone = true),
      pull: async (controller) => {
        if (delayMs !== undefined) await new Promise((resolve) => setTimeout(resolve, delayMs));
        while (this.sent >= this.most && !gone) await new Promise((resolve) => setTimeout(resolve, 5));
        if (gone) return;
        if (at < stop) {
          const chunk = body.subarray(at, Math.min(at + CHUNK, stop));
          at += chunk.length;
          this.sent += chunk.length;
          controller.enqueue(chunk);
        } else if (fault?.kind === "drop") controller.error(new Error("dropped"));
        else if (fault?.kind === "stall") await new Promise(() => {});
        else controller.close();
      },
    }, { highWaterMark: 0 });
  }
}
