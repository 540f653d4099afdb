import { assert, assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { createApp } from "../app.ts";
import { digestOf, KeyRing } from "./keys.ts";
import { Allowance } from "./caller.ts";
import { ApiError } from "../core/errors.ts";
import { FakeEngine } from "../testing.ts";
import { until } from "../testing_server.ts";

const named = (name: string, key: string, limits = {}) => ({ name, digest: digestOf(key), ...limits });

Deno.test("keys: a single key without a name owns the data stored without keys; named keys own separate data", () => {
  const { name, owner, cacheSalt } = new KeyRing(["one"]).admit("one")!;
  assertEquals([name, owner, cacheSalt], ["api-key", "", undefined]);
  const two = new KeyRing(["one", "two"]);
  assertEquals(two.admit("one")!.owner, digestOf("one").toHex().slice(0, 16));
  assertNotEquals(two.admit("one")!.owner, two.admit("two")!.owner);
  assertEquals(two.admit("on"), undefined);
});

Deno.test("keys: owner and cache salt depend only on the key's name", () => {
  const before = new KeyRing([], [named("alice", "a1"), named("bob", "b1")]).admit("a1")!;
  const after = new KeyRing(["plain"], [named("alice", "a2")]).admit("a2")!;
  assertEquals([after.owner, after.cacheSalt], [before.owner, before.cacheSalt]);
  assertEquals(before.owner, "67db8dd4a2654b20"); // stored by existing servers, so it must not change
  assertEquals(new KeyRing(["plain"], [named("alice", "a2")]).admit("plain")!.owner, "");
});

Deno.test("keys: refuse repeated names and repeated keys", () => {
  assertThrows(
    () => new KeyRing([], [named("a", "1"), named("a", "2")]),
    Error,
    '"a": its name is there already',
  );
  assertThrows(() => new KeyRing(["1"], [named("a", "1")]), Error, '"a": its key is there already');
  assertThrows(() => new KeyRing(["white space"]), Error, "must be 1 to 512 letters");
});

Deno.test("keys: can be replaced while requests run, and used tokens still count", () => {
  const ring = new KeyRing([], [named("a", "1", { requestsAtOnce: 1, tokensPerMinute: 100 })]);
  const { allowance } = ring.admit("1")!;
  const leave = allowance.enter(0);
  allowance.take(150);
  assertThrows(() => ring.named = [named("b", "1"), named("c", "1")], Error, '"c": its key is there already');
  const twice = [named("a", "1", { requestsAtOnce: 9 }), named("b", "2"), named("b", "3")];
  assertThrows(() => ring.named = twice, Error, '"b": its name is there already');
  assertThrows(() => allowance.enter(0), ApiError, "1 request at once"); // nothing has changed
  ring.named = [named("a", "2", { requestsAtOnce: 2, tokensPerMinute: 140 }), named("b", "3")];
  assertEquals(ring.admit("1"), undefined);
  const again = ring.admit("2")!.allowance;
  assertThrows(() => again.enter(0), ApiError, "140 tokens a minute");
  const second = again.enter(60_000);
  assertThrows(() => again.enter(60_000), ApiError, "2 requests at once");
  leave();
  leave();
  second();
  again.enter(60_000);
});

Deno.test("keys: tokens refill evenly, and retry-after is the time until some are left", () => {
  const allowance = new Allowance("It", { tokensPerMinute: 600 });
  const refusal = (now: number) => assertThrows(() => allowance.enter(now), ApiError);
  allowance.enter(0)();
  allowance.take(700); // a request may take more than the remaining tokens
  const error = refusal(0);
  assertEquals([error.status, error.code, error.type], [429, "rate_limit_exceeded", "rate_limit_error"]);
  assertEquals(error.headers["retry-after"], "11");
  assertEquals(refusal(9_900).headers["retry-after"], "1");
  allowance.enter(11_000)();
  allowance.take(10_000);
  assertEquals(refusal(11_000).headers["retry-after"], "1000");
  allowance.enter(10 * 3_600_000)();
  allowance.take(600); // at most one minute's tokens are saved up
  refusal(10 * 3_600_000);
});

Deno.test("keys: every route accepts both Authorization and x-api-key", async () => {
  const engine = new FakeEngine();
  const app = createApp(engine, { apiKeys: ["secret"] });
  const status = async (headers: Record<string, string>) => {
    const response = await app.request("/health", { headers });
    await response.body?.cancel();
    return response.status;
  };
  assertEquals(await status({ "x-api-key": "secret" }), 200);
  assertEquals(await status({ authorization: "Bearer secret" }), 200);
  assertEquals(await status({ authorization: "Bearer unused", "x-api-key": "secret" }), 200);
  assertEquals(await status({ authorization: "Bearer secret", "x-api-key": "unused" }), 200);
  assertEquals(await status({ "x-api-key": "" }), 401);
  assertEquals(await status({ "x-api-key": "Bearer secret" }), 401);
  assertEquals(await status({ "x-api-key": "wrong", authorization: "Bearer wrong" }), 401);
});

Deno.test("keys: limit requests at once per key; a stream counts until it ends or its reader leaves", async () => {
  const engine = new FakeEngine();
  const keys = new KeyRing([], [named("a", "1", { requestsAtOnce: 1 }), named("b", "2")]);
  const app = createApp(engine, { apiKeys: keys });
  const ask = (key: string, body: object, signal?: AbortSignal) =>
    app.request("/v1/completions", {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "demo", prompt: "a", ...body }),
      signal,
    });
  const open = await ask("1", { stream: true, max_tokens: 100 });
  assertEquals(open.status, 200);
  const refused = await ask("1", { max_tokens: 1 });
  assertEquals([refused.status, refused.headers.get("retry-after")], [429, "1"]);
  assertEquals(
    (await refused.json()).error.message,
    'The API key "a" has a limit of 1 request at once and has reached it; send the request again in 1 s',
  );
  assertEquals((await ask("2", { max_tokens: 1 })).status, 200);
  await open.body!.cancel();
  await until(async () => (await ask("1", { max_tokens: 1 })).status === 200);
  // Refusals, whole answers and whole streams free their places.
  assertEquals((await ask("1", { model: "other" })).status, 404);
  assert((await (await ask("1", { stream: true, max_tokens: 1 })).text()).includes("[DONE]"));
  assertEquals((await ask("1", { max_tokens: 1 })).status, 200);
});
