import { assertEquals, assertRejects } from "@std/assert";
import { fullTier } from "../../testing/tier.ts";
import { type HostConnection, imageFetcher, isPublic } from "./fetch_image.ts";

const PUBLIC = "93.184.216.34";
const HOSTS = ["img.example", "cdn.example"];

interface Host {
  /** Contacted hosts and requested paths, in order. */
  readonly asked: string[];
  fetch(url: string, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer> | string>;
}

/** Runs `test` with a fetcher that connects to a server in this process. `address` returns each host's pretended address. */
async function withHost(
  answer: (request: Request) => Response | Promise<Response>,
  test: (host: Host) => Promise<void>,
  address: (host: string) => string = () => PUBLIC,
): Promise<void> {
  const asked: string[] = [];
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen() {} }, (request) => {
    asked.push(new URL(request.url).pathname);
    return answer(request);
  });
  const { port } = server.addr;
  const connect = async (host: string): Promise<HostConnection> => {
    asked.push(host);
    const connection = await Deno.connect({ port });
    const close = () => {
      try {
        connection.close();
      } catch {
        // It is closed already.
      }
    };
    return { address: address(host), secure: () => Promise.resolve(connection), close };
  };
  try {
    await test({ asked, fetch: imageFetcher(HOSTS, connect) });
  } finally {
    await server.shutdown();
  }
}

const text = (found: Uint8Array | string) =>
  typeof found === "string" ? found : new TextDecoder().decode(found);

Deno.test("remote images: accepts only public addresses", () => {
  const shut =
    "0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.168.1.1 198.18.0.1 " +
    "224.0.0.1 255.255.255.255 :: ::1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 fe80::1 fc00::1 fd00:ec2::254 ff02::1 64:ff9b::a00:1 " +
    "2001::1 2001:db8::1 2002:a00:1::1";
  for (const address of shut.split(" ")) assertEquals([address, isPublic(address)], [address, false]);
  const open =
    "1.1.1.1 8.8.8.8 93.184.216.34 172.15.0.1 172.32.0.1 192.169.0.1 2606:4700::1111 2a00:1450:4001::1";
  for (const address of open.split(" ")) assertEquals([address, isPublic(address)], [address, true]);
});

Deno.test("remote images: fetches from allowed hosts, and follows redirects among them only", async () => {
  const answer = (request: Request) => {
    const { pathname, search } = new URL(request.url);
    if (pathname === "/moved") return Response.redirect("https://cdn.example/there?x=1");
    if (pathname === "/away") return Response.redirect("https://other.example/there");
    if (pathname === "/down") return Response.redirect("http://cdn.example/there");
    if (pathname === "/loop") return Response.redirect("https://img.example/loop");
    if (pathname === "/gone") return new Response("", { status: 404 });
    return new Response(`${request.headers.get("host")}${pathname}${search}`);
  };
  await withHost(answer, async ({ fetch, asked }) => {
    assertEquals(text(await fetch("https://IMG.example/a?b=c")), "img.example/a?b=c");
    assertEquals(text(await fetch("https://img.example/moved")), "cdn.example/there?x=1");
    assertEquals(await fetch("https://img.example/gone"), "its host answers 404");
    assertEquals(await fetch("https://img.example/loop"), "its host redirects more than 3 times");
    const before = asked.length;
    const only = "images are fetched only from https://img.example, https://cdn.example";
    for (
      const url of [
        "https://other.example/a",
        "https://img.example:8443/a",
        "https://me:secret@img.example/a",
        "https://img.example.evil.example/a",
        "https://[::1]/a",
        "https://",
      ]
    ) assertEquals(await fetch(url), only, url);
    assertEquals(asked.length, before, "no connection was made");
    for (const path of ["/away", "/down"]) assertEquals(await fetch(`https://img.example${path}`), only);
  });
});

Deno.test("remote images: sends nothing to a private address, also after a redirect", async () => {
  const answer = () => Response.redirect("https://cdn.example/");
  const address = (host: string) => host === "cdn.example" ? "169.254.169.254" : PUBLIC;
  await withHost(answer, async ({ fetch, asked }) => {
    assertEquals(await fetch("https://img.example/a"), "its host has no public address");
    assertEquals(asked, ["img.example", "/a", "cdn.example"]);
  }, address);
});

Deno.test("remote images: limits bytes with and without a content length, and stops when its request ends", async () => {
  const large = new Uint8Array(11 * 2 ** 20);
  const stalled = Promise.withResolvers<Response>();
  const answer = (request: Request) => {
    const { pathname } = new URL(request.url);
    if (pathname === "/stalled") return stalled.promise;
    return new Response(pathname === "/long" ? large : new Blob([large]).stream());
  };
  await withHost(answer, async ({ fetch }) => {
    for (const path of ["/long", "/chunks"]) {
      assertEquals(await fetch(`https://img.example${path}`), "it must have at most 10485760 bytes");
    }
    const signal = AbortSignal.timeout(50);
    await assertRejects(() => fetch("https://img.example/stalled", signal), DOMException);
    stalled.resolve(new Response());
  });
});

fullTier.test("remote images: a host that sends nothing is given up after 20 seconds", async () => {
  const stalled = Promise.withResolvers<Response>();
  await withHost(() => stalled.promise, async ({ fetch }) => {
    assertEquals(await fetch("https://img.example/a"), "it did not arrive within 20 s");
    stalled.resolve(new Response());
  });
});
