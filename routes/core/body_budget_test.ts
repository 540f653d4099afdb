import { assert, assertEquals, assertRejects } from "@std/assert";
import { startEngine } from "../../testing/engine.ts";
import { createApp } from "../app.ts";
import { KeyRing } from "../access/keys.ts";
import { BodyBudget } from "./body_budget.ts";
import { ApiError } from "./errors.ts";

const KIB = 1024;

Deno.test("body budget: one sender gets at most half, and other senders the rest", async () => {
  const budget = new BodyBudget(400 * KIB, 20);
  const [one, two, other] = [budget.hold("a"), budget.hold("a"), budget.hold("b")];
  await one.take(150 * KIB);
  const error = await assertRejects(() => two.take(100 * KIB), ApiError, "153600 of 409600");
  assertEquals([error.status, error.code], [429, "too_many_transfers"]);
  await other.take(200 * KIB);
  assertEquals(budget.held, 350 * KIB);
  one.release();
  two.release();
  other.release();
  assertEquals(budget.held, 0);
});

Deno.test("body budget: a body waits until another has arrived", async () => {
  const budget = new BodyBudget(200 * KIB, 60_000);
  const [one, two] = [budget.hold("a"), budget.hold("a")];
  await one.take(90 * KIB);
  const waiting = two.take(80 * KIB);
  one.release();
  await waiting;
  assertEquals(budget.held, 80 * KIB);
  two.release();
});

Deno.test("body budget: small bodies always pass, and parts of a growing body count once", async () => {
  const budget = new BodyBudget(100 * KIB, 20);
  const full = budget.hold("a");
  await full.take(50 * KIB);
  await budget.hold("a").take(16 * KIB);
  const growing = budget.hold("b");
  for (let i = 0; i < 5; i++) await growing.take(10 * KIB);
  assertEquals(budget.held, 100 * KIB);
  await assertRejects(() => growing.take(KIB), ApiError);
  growing.release();
  full.release();
  assertEquals(budget.held, 0);
});

/** Starts a request whose body never ends. Returns its answer, and a function that closes the connection. */
function unfinished(app: ReturnType<typeof createApp>, key: string, announced: number | undefined) {
  let cut = () => {};
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(new Uint8Array(20 * KIB).fill(32));
      cut = () => controller.error(new Error("left"));
    },
  });
  const headers: Record<string, string> = {
    "content-type": "application/json",
    authorization: `Bearer ${key}`,
  };
  if (announced !== undefined) headers["content-length"] = String(announced);
  const answer = app.request("/v1/completions", { method: "POST", headers, body });
  return { answer: Promise.resolve(answer), cut };
}

for (
  const [kind, announced, fit] of [["of known length", 30 * KIB, 2], ["in chunks", undefined, 3]] as const
) {
  Deno.test(`body budget: unfinished bodies ${kind} of one key do not block another key's bodies`, async () => {
    const { engine } = startEngine();
    const keys = new KeyRing(["first", "second"]);
    const app = createApp(engine, { apiKeys: keys, limits: { bodiesBytes: 140 * KIB, bodiesMs: 20 } });
    const held = Array.from({ length: 10 }, () => unfinished(app, "first", announced));
    const codes = await Promise.all(
      held.slice(fit).map(async ({ answer }) => (await (await answer).json()).error.code),
    );
    assert(codes.every((code) => code === "too_many_transfers"), codes.join());
    const body = JSON.stringify({ prompt: "x".repeat(100), max_tokens: 1, user: "y".repeat(40 * KIB) });
    const headers = { "content-type": "application/json", authorization: "Bearer second" };
    const answer = await app.request("/v1/completions", { method: "POST", headers, body });
    assertEquals([answer.status, (await answer.json()).error], [200, undefined]);
    for (const { cut } of held) cut();
    const endings = await Promise.all(held.slice(0, fit).map(async ({ answer }) => (await answer).status));
    assert(endings.every((status) => status === 400), endings.join());
    const after = await app.request("/v1/completions", {
      method: "POST",
      headers: { ...headers, authorization: "Bearer first" },
      body,
    });
    assertEquals(after.status, 200, "the bytes are given back");
    await after.body?.cancel();
    await engine.close();
  });
}
