import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { BatchError } from "../errors.ts";
import { createConnection, createServer } from "node:net";
import { natsTarget, openConnection } from "./connection.ts";

function target(urls: string, env: Record<string, string> = {}, creds?: string) {
  const { servers, tls, ...found } = natsTarget(urls, creds, (name) => env[name]);
  const given = Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
  return { servers: servers.join(), tls, ...given };
}

Deno.test("natsTarget: hosts, ports and TLS", () => {
  assertEquals(target("nats://host"), { servers: "host:4222", tls: false });
  assertEquals(target("host"), { servers: "host:4222", tls: false });
  assertEquals(target("tls://host:443"), { servers: "host:443", tls: true });
  assertEquals(target("nats://host:80"), { servers: "host:80", tls: false });
  assertEquals(target("nats://a:1, nats://[::1]:2/"), { servers: "a:1,[::1]:2", tls: false });
});

Deno.test("natsTarget: credentials from the URL, a file, the environment, in this order", () => {
  const env = { NATS_USER: "u", NATS_PASSWORD: "p", NATS_TOKEN: "t", NATS_CREDS: "c" };
  const at = { servers: "h:4222", tls: false };
  assertEquals(target("nats://a:b%40c@h", env), { ...at, user: "a", password: "b@c" });
  assertEquals(target("nats://token@h", env), { ...at, token: "token" });
  assertEquals(target("nats://a:b@h", env, "file"), { ...at, credsFile: "file" });
  assertEquals(target("h", env), { ...at, credsFile: "c" });
  assertEquals(target("h", { ...env, NATS_CREDS: "" }), { ...at, user: "u", password: "p" });
  assertEquals(target("h", { NATS_TOKEN: "t" }), { ...at, token: "t" });
});

Deno.test("natsTarget: an invalid URL is refused, and no password is shown", () => {
  for (
    const url of [
      "",
      "http://h",
      "nats://",
      "nats://h/path",
      "nats://h:99999",
      "nats://h?x",
      "nats://a b",
      "nats://a:%zz@h",
      "a,,b",
    ]
  ) {
    assertThrows(() => natsTarget(url, undefined, () => undefined), Error, "Invalid NATS server");
  }
  const error = assertThrows(() => natsTarget("ws://me:secret@h", undefined, () => undefined), Error);
  assertEquals(error.message.includes("secret"), false);
});

Deno.test("openConnection: where no server is, it says what to do", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  const error = await assertRejects(
    () => openConnection(natsTarget(`127.0.0.1:${port}`, undefined, () => undefined), "test", () => {}),
    BatchError,
    `Cannot reach a NATS server at 127.0.0.1:${port}`,
  );
  assertEquals([error.code, error.resumable], ["queue_unavailable", true]);
  const creds = natsTarget(`127.0.0.1:${port}`, "missing.creds", () => undefined);
  await assertRejects(() => openConnection(creds, "test", () => {}), BatchError, '"missing.creds"');
});

Deno.test("openConnection: a socket that is reset when nobody listens to it any more ends nothing", async () => {
  const unreachable = natsTarget("127.0.0.1:1", undefined, () => undefined);
  await assertRejects(() => openConnection(unreachable, "test", () => {}), BatchError);
  const server = createServer((socket) => socket.on("data", () => socket.resetAndDestroy()));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const socket = createConnection(port, "127.0.0.1");
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.write("PING\r\n");
  await closed;
  await new Promise<void>((resolve) => server.close(() => resolve()));
});
