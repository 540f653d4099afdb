import { assert, assertEquals, assertRejects } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { settle } from "../../testing/engine.ts";
import { Compilers, compilers } from "./compilers.ts";
import { fullTier } from "../../testing/tier.ts";
import { openGguf } from "../gguf/reader.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import { createGrammars } from "./grammars.ts";
import { byteTokenizer } from "./testing.ts";
import { CompilersBusy, type Constraint, ConstraintError } from "./types.ts";

/** Compilers that run until they are ended by name. */
class Trial {
  readonly compilers = new Compilers(50);
  readonly started: string[] = [];
  readonly #ends = new Map<string, () => void>();

  run(name: string, tenant: string, batch = false): Promise<string> {
    return this.compilers.run({ tenant, batch }, async () => {
      this.started.push(name);
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#ends.set(name, resolve);
      await promise;
      return name;
    }, () => false);
  }

  async end(name: string): Promise<void> {
    await settle();
    this.#ends.get(name)!();
    await settle();
  }
}

const AT_ONCE = Math.max(4, navigator.hardwareConcurrency);

Deno.test("compilers: slow constraints of one tenant leave a compiler free for another tenant", async () => {
  const trial = new Trial();
  const slow = Array.from({ length: AT_ONCE }, (_, i) => trial.run(`slow ${i}`, "a"));
  const refused = assertRejects(() => slow.at(-1)!, CompilersBusy);
  const cheap = trial.run("cheap", "b");
  await settle();
  assertEquals(trial.started.slice(-2), [`slow ${AT_ONCE - 2}`, "cheap"]);
  await trial.end("cheap");
  await cheap;
  await refused;
  for (let i = 0; i < AT_ONCE - 1; i++) await trial.end(`slow ${i}`);
  await Promise.all(slow.slice(0, -1));
});

Deno.test("compilers: batch lines wait without a limit, and leave compilers free for other requests", async () => {
  const trial = new Trial();
  const lines = Array.from({ length: AT_ONCE + 2 }, (_, i) => trial.run(`line ${i}`, "a", true));
  await settle();
  assertEquals(trial.started.length, AT_ONCE - 2);
  const chat = trial.run("chat", "a");
  await settle();
  assertEquals(trial.started.at(-1), "chat");
  await new Promise((resolve) => setTimeout(resolve, 80));
  await trial.end("chat");
  await chat;
  for (let i = 0; i < lines.length; i++) await trial.end(`line ${i}`);
  assertEquals((await Promise.all(lines)).length, lines.length);
});

Deno.test("compilers: the waiting tenant that used the least compile time starts first", async () => {
  const trial = new Trial();
  const first = Array.from({ length: AT_ONCE - 1 }, (_, i) => trial.run(`a${i}`, "a"));
  const other = trial.run("b0", "b");
  const waiting = [trial.run("a waiting", "a"), trial.run("c waiting", "c")];
  await new Promise((resolve) => setTimeout(resolve, 5));
  await trial.end("a0");
  assertEquals(trial.started.at(-1), "c waiting");
  await trial.end("a1");
  assertEquals(trial.started.at(-1), "a waiting");
  for (const name of [...trial.started]) await trial.end(name);
  await Promise.all([...first, other, ...waiting]);
});

Deno.test("compilers: while the library is busy, compiling is tried again, without a time limit for batch lines", async () => {
  const compilers = new Compilers(60);
  const busy = new Error("busy");
  let left = 4;
  const compile = () => left-- > 0 ? Promise.reject(busy) : Promise.resolve("compiled");
  const isBusy = (error: unknown) => error === busy;
  assertEquals(await compilers.run({ tenant: "", batch: true }, compile, isBusy), "compiled");
  left = 4;
  await assertRejects(() => compilers.run({ tenant: "", batch: false }, compile, isBusy), CompilersBusy);
});

Deno.test("compilers: while the library is busy, the tenant that used the least compile time tries first", async () => {
  const compilers = new Compilers(2000);
  const busy = new Error("busy");
  let places = 0;
  const started: string[] = [];
  const run = (tenant: string, batch = false) =>
    compilers.run({ tenant, batch }, () => {
      if (places-- <= 0) return Promise.reject(busy);
      started.push(tenant);
      return Promise.resolve();
    }, (error) => error === busy);
  // This tenant stays active, so that its compile time counts.
  const slow = Promise.withResolvers<void>();
  const running = compilers.run({ tenant: "a", batch: false }, () => slow.promise, () => false);
  await compilers.run(
    { tenant: "a", batch: false },
    () => new Promise((resolve) => setTimeout(resolve, 5)),
    () => false,
  );
  const all = [run("a"), run("b")];
  await new Promise((resolve) => setTimeout(resolve, 20));
  places = 1;
  await all[1];
  places = 1;
  await all[0];
  assertEquals(started, ["b", "a"]);
  slow.resolve();
  await running;
});

Deno.test("compilers: one tenant can queue a bounded number of constraints", async () => {
  const trial = new Trial();
  const all = Array.from(
    { length: AT_ONCE - 1 + 70 },
    (_, i) => trial.run(`${i}`, "a").catch((error) => error),
  );
  await trial.end("0");
  const refused = all.slice(AT_ONCE - 1 + 64);
  for (const error of await Promise.all(refused)) assertEquals(error instanceof CompilersBusy, true);
  for (let i = 1; i < AT_ONCE - 1 + 64; i++) if (trial.started.includes(`${i}`)) await trial.end(`${i}`);
  await Promise.all(all);
});

Deno.test("compilers: when two tenants send the same constraint, a refusal because one is busy does not refuse the other", async () => {
  const grammars = createGrammars(byteTokenizer);
  const { promise: end, resolve } = Promise.withResolvers<void>();
  const busy = { tenant: "busy", batch: false };
  const all = Array.from({ length: AT_ONCE - 1 + 64 }, () => compilers.run(busy, () => end, () => false));
  await assertRejects(() => grammars.compile(good(1), busy), CompilersBusy);
  const shared = grammars.compile(good(0), busy).catch(() => {});
  await grammars.compile(good(0), { tenant: "other", batch: false });
  resolve();
  await Promise.all([...all, shared]);
  grammars.close();
});

const VOCABULARIES = Deno.env.get("COMPY_VOCAB_DIR") ??
  fromFileUrl(new URL("../../../shared/data/vocab", import.meta.url));
const LARGE = join(VOCABULARIES, "llama-bpe.gguf");

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

/** An ambiguous grammar whose masks take too much work, different for each `i`. */
const ambiguous = (i: number): Constraint => ({
  kind: "gbnf",
  grammar: `root ::= "line ${i} " e\ne ::= [a-z] e e e | [a-z] e | [a-z]`,
});
const good = (i: number): Constraint => ({
  kind: "json_schema",
  schema: { type: "object", properties: { [`name${i}`]: { type: "string" } } },
});

fullTier.test({
  name:
    "compilers: among ambiguous grammars every good line compiles, and another tenant's schema does not wait",
  ignore: !exists(LARGE),
  async fn() {
    const grammars = createGrammars(createTokenizer((await openGguf(LARGE)).metadata));
    await grammars.compile(good(-1));
    const line = { tenant: "a", batch: true };
    const lines = Array.from(
      { length: 60 },
      (_, i) => grammars.compile((i % 3 === 0 ? ambiguous : good)(i), line),
    );
    const results = Promise.allSettled(lines);
    const start = performance.now();
    await grammars.compile(good(1000), { tenant: "b", batch: false });
    const waited = performance.now() - start;
    for (const [i, result] of (await results).entries()) {
      if (i % 3 > 0) assertEquals(result.status, "fulfilled", `line ${i}`);
      else assert(result.status === "rejected" && result.reason instanceof ConstraintError, `line ${i}`);
    }
    const whole = performance.now() - start;
    assert(waited < whole / 4, `the other tenant waited ${waited} of ${whole} ms`);
    const again = performance.now();
    await assertRejects(() => grammars.compile(ambiguous(0), line), ConstraintError);
    assert(performance.now() - again < 50, "a repeated refusal costs nothing");
    grammars.close();
  },
});
