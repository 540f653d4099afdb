import { type IncomingMessage, request } from "node:http";
import { BlockList } from "node:net";
import { Duplex } from "node:stream";
import { abortable } from "@std/async/abortable.js";
import { MOST_IMAGE_BYTES } from "../../engine/mod.ts";

/** Returns the bytes of the image at a URL, or the reason why it cannot be fetched. */
export type FetchImage = (url: string, signal?: AbortSignal) => Promise<Uint8Array<ArrayBuffer> | string>;

/** A connection to a host. Nothing is sent before `secure`. */
export interface HostConnection {
  /** The IP address at the other end. */
  readonly address: string;
  /** Proves that the other end is the host, and returns the connection. */
  secure(): Promise<Pick<Deno.Conn, "readable" | "writable">>;
  close(): void;
}

const LONGEST_MS = 20_000;
const MOST_REDIRECTS = 3;
const HTTPS_PORT = 443;

/** Private, reserved and special ranges. Addresses of cloud services for metadata are link-local or private. */
const RESERVED: readonly (readonly [net: string, bits: number])[] = [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 3],
];
/** Ranges of IPv6 within 2000::/3 that are reserved, or contain an IPv4 address. */
const RESERVED_6 = [["2001::", 23], ["2001:db8::", 32], ["2002::", 16], ["3fff::", 20]] as const;

const reserved = new BlockList();
for (const [net, bits] of RESERVED) reserved.addSubnet(net, bits, "ipv4");
for (const [net, bits] of RESERVED_6) reserved.addSubnet(net, bits, "ipv6");
const global6 = new BlockList();
global6.addSubnet("2000::", 3, "ipv6");

/** Whether the address is on the public internet. */
export function isPublic(address: string): boolean {
  if (!address.includes(":")) return !reserved.check(address, "ipv4");
  return global6.check(address, "ipv6") && !reserved.check(address, "ipv6");
}

/**
 * Returns a function that fetches images by https from these hosts. An image has at most MOST_IMAGE_BYTES bytes, 20
 * seconds and three redirects. The function sends nothing to a host whose address is not public.
 */
export function imageFetcher(
  hosts: readonly string[],
  connect: (host: string) => Promise<HostConnection> = connectTo,
): FetchImage {
  const allowed = new Set(hosts.map((host) => host.toLowerCase()));
  return async (given, signal) => {
    const ends = AbortSignal.any([AbortSignal.timeout(LONGEST_MS), ...signal ? [signal] : []]);
    try {
      let url = given;
      for (let hops = 0; hops <= MOST_REDIRECTS; hops++) {
        const parsed = URL.parse(url);
        if (!parsed || !isAllowed(parsed, allowed)) return refusalOf(hosts);
        const found = await fetchOnce(parsed, connect, ends);
        if (!(found instanceof URL)) return found;
        url = found.href;
      }
      return `its host redirects more than ${MOST_REDIRECTS} times`;
    } catch (error) {
      signal?.throwIfAborted();
      if (ends.aborted) return `it did not arrive within ${LONGEST_MS / 1000} s`;
      return error instanceof Deno.errors.NotCapable
        ? "the server is not permitted to reach its host"
        : "its host cannot be reached, or answers wrongly";
    }
  };
}

function isAllowed(url: URL, hosts: ReadonlySet<string>): boolean {
  const { protocol, hostname, port, username, password } = url;
  return protocol === "https:" && port === "" && username + password === "" && hosts.has(hostname);
}

function refusalOf(hosts: readonly string[]): string {
  return `images are fetched only from https://${hosts.join(", https://")}`;
}

/** Returns the image's bytes, the URL of a redirect, or the reason for a refusal. */
async function fetchOnce(
  url: URL,
  connect: (host: string) => Promise<HostConnection>,
  signal: AbortSignal,
): Promise<Uint8Array<ArrayBuffer> | URL | string> {
  const connecting = connect(url.hostname);
  const connection = await abortable(connecting, signal).catch((error: unknown) => {
    connecting.then((late) => late.close(), () => {});
    throw error;
  });
  let socket: Duplex | undefined;
  try {
    if (!isPublic(connection.address)) return "its host has no public address";
    const secure = await abortable(connection.secure(), signal);
    socket = Duplex.fromWeb(secure as Parameters<typeof Duplex.fromWeb>[0]);
    return await abortable(answerOf(url, socket), signal);
  } finally {
    socket?.destroy();
    connection.close();
  }
}

async function answerOf(url: URL, socket: Duplex): Promise<Uint8Array<ArrayBuffer> | URL | string> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  socket.on("error", reject);
  const asked = request({
    createConnection: () => socket as never,
    path: url.pathname + url.search,
    headers: { host: url.host, accept: "image/*", "user-agent": "compy" },
  }, resolve);
  asked.on("error", reject);
  asked.end();
  const response = await promise;
  const { statusCode = 0, headers: { location, "content-length": length } } = response;
  if (statusCode >= 300 && statusCode < 400 && location) return new URL(location, url);
  if (statusCode !== 200) return `its host answers ${statusCode}`;
  const parts: Uint8Array[] = [];
  let bytes = Number(length ?? 0);
  if (bytes <= MOST_IMAGE_BYTES) {
    bytes = 0;
    for await (const part of response as AsyncIterable<Uint8Array>) {
      bytes += part.length;
      if (bytes > MOST_IMAGE_BYTES) break;
      parts.push(part);
    }
  }
  if (bytes > MOST_IMAGE_BYTES) return `it must have at most ${MOST_IMAGE_BYTES} bytes`;
  return new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
}

/** Connects to the host by name, as Deno's permission requires. The caller checks the address before it sends anything. */
async function connectTo(hostname: string): Promise<HostConnection> {
  const connection = await Deno.connect({ hostname, port: HTTPS_PORT });
  let secured: Deno.TlsConn | undefined;
  return {
    address: connection.remoteAddr.hostname,
    secure: async () => secured = await Deno.startTls(connection, { hostname }),
    close: () => closeQuietly(secured ?? connection),
  };
}

function closeQuietly(connection: Deno.Conn): void {
  try {
    connection.close();
  } catch {
    // It is closed already.
  }
}
