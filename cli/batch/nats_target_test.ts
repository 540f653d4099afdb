import { assertEquals, assertThrows } from "@std/assert";
import { natsTarget } from "./nats_target.ts";

function target(urls: string, env: Record<string, string> = {}, creds?: string) {
  const { servers, tls, ...found } = natsTarget(urls, creds, (name) => env[name]);
  const given = Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
  return { servers: servers.join(), tls, ...given };
}

Deno.test("natsTarget: reads hosts, ports and TLS", () => {
  assertEquals(target("nats://host"), { servers: "host:4222", tls: false });
  assertEquals(target("host"), { servers: "host:4222", tls: false });
  assertEquals(target("tls://host:443"), { servers: "host:443", tls: true });
  assertEquals(target("nats://host:80"), { servers: "host:80", tls: false });
  assertEquals(target("nats://a:1, nats://[::1]:2/"), { servers: "a:1,[::1]:2", tls: false });
});

Deno.test("natsTarget: takes credentials from the URL, then a file, then the environment", () => {
  const env = { NATS_USER: "u", NATS_PASSWORD: "p", NATS_TOKEN: "t", NATS_CREDS: "c" };
  const at = { servers: "h:4222", tls: false };
  assertEquals(target("nats://a:b%40c@h", env), { ...at, user: "a", password: "b@c" });
  assertEquals(target("nats://token@h", env), { ...at, token: "token" });
  assertEquals(target("nats://a:b@h", env, "file"), { ...at, credsFile: "file" });
  assertEquals(target("h", env), { ...at, credsFile: "c" });
  assertEquals(target("h", { ...env, NATS_CREDS: "" }), { ...at, user: "u", password: "p" });
  assertEquals(target("h", { NATS_TOKEN: "t" }), { ...at, token: "t" });
});

Deno.test("natsTarget: refuses an invalid URL without showing its password", () => {
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
