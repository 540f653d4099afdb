import { assert, assertEquals, assertRejects } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { settle } from "../../testing/engine.ts";
import { compilers, compilerTurns } from "./compilers.ts";
import { fullTier } from "../../testing/tier.ts";
import { openGguf } from "../gguf/reader.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import { createGrammars } from "./grammars.ts";
import { byteTokenizer } from "./testing.ts";
import { CompilersBusy, type Constraint, ConstraintError } from "./types.ts";

/** Fake compilers that run until a test ends them by name. */
class Trial {
  readonly compilers = compilerTurns(50);
  readonly started: string[] = [];
  readonly #ends = new Map<string, () => void>();

  run(name: string, tenant: string, batch = false): Promise<string> {
    return this.compilers.run({ tenant, batch }, async () => {
      this.started.push(name);
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#ends.set(name, resolve);
      await promise;
      return name;
    });
  }

  async end(name: string): Promise<void> {
    await settle();
    this.#ends.get(name)!();
    await settle();
  }
}

const AT_ONCE = Math.max(8, navigator.hardwareConcurrency);
const OF_TENANT = AT_ONCE / 4;

Deno.test("compilers: slow constraints of one tenant and of its batches do not delay another tenant", async () => {
  const trial = new Trial();
  const slow = Array.from({ length: OF_TENANT + 1 }, (_, i) => trial.run(`slow ${i}`, "a"));
  const refused = assertRejects(() => slow.at(-1)!, CompilersBusy);
  const lines = Array.from({ length: OF_TENANT }, (_, i) => trial.run(`line ${i}`, "a", true));
  await settle();
  assertEquals(trial.started.length, 2 * OF_TENANT);
  const cheap = trial.run("cheap", "b");
  await settle();
  assertEquals(trial.started.at(-1), "cheap");
  await refused;
  for (const name of [...trial.started]) await trial.end(name);
  await Promise.all([...slow.slice(0, -1), ...lines, cheap]);
});

Deno.test("compilers: slow constraints of many tenants do not delay a tenant without a compiler", async () => {
  const trial = new Trial();
  const slow = Array.from({ length: AT_ONCE }, (_, i) => trial.run(`slow ${i}`, `${i / OF_TENANT | 0}`));
  const cheap = trial.run("cheap", "b");
  await settle();
  assertEquals(trial.started.at(-1), "cheap");
  for (const name of [...trial.started]) await trial.end(name);
  await Promise.all([...slow, cheap]);
});

Deno.test("compilers: batch lines wait without a limit, and leave compilers free for other requests", async () => {
  const trial = new Trial();
  const lines = Array.from({ length: OF_TENANT + 2 }, (_, i) => trial.run(`line ${i}`, "a", true));
  await settle();
  assertEquals(trial.started.length, OF_TENANT);
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
  const running = Array.from({ length: AT_ONCE }, (_, i) => trial.run(`${i}`, `${i / OF_TENANT | 0}`));
  const others = Array.from({ length: AT_ONCE }, (_, i) => trial.run(`other ${i}`, `other ${i}`));
  const waiting = [trial.run("0 waits", "0"), trial.run("late waits", "late")];
  await new Promise((resolve) => setTimeout(resolve, 5));
  await trial.end("0");
  assertEquals(trial.started.at(-1), "late waits");
  for (const name of [...trial.started]) await trial.end(name);
  assertEquals(trial.started.at(-1), "0 waits");
  await trial.end("0 waits");
  await Promise.all([...running, ...others, ...waiting]);
});

Deno.test("compilers: a refused constraint keeps its tenant's place while its compiler still runs", async () => {
  const compilers = compilerTurns(2000);
  const ends = Array.from({ length: OF_TENANT }, () => Promise.withResolvers<void>());
  const asker = { tenant: "a", batch: false };
  for (const { promise } of ends) {
    await assertRejects(() =>
      compilers.run(asker, (hold) => {
        hold(promise);
        return Promise.reject(new ConstraintError("too slow"));
      }), ConstraintError);
  }
  let started = false;
  const next = compilers.run(asker, () => Promise.resolve(started = true));
  await compilers.run({ tenant: "b", batch: false }, () => Promise.resolve());
  assertEquals(started, false);
  ends[0].resolve();
  await next;
});

Deno.test("compilers: one tenant can queue a bounded number of constraints", async () => {
  const trial = new Trial();
  const all = Array.from(
    { length: OF_TENANT + 70 },
    (_, i) => trial.run(`${i}`, "a").catch((error) => error),
  );
  await trial.end("0");
  const refused = all.slice(OF_TENANT + 64);
  for (const error of await Promise.all(refused)) assertEquals(error instanceof CompilersBusy, true);
  for (let i = 1; i < OF_TENANT + 64; i++) if (trial.started.includes(`${i}`)) await trial.end(`${i}`);
  await Promise.all(all);
});

Deno.test("compilers: when two tenants send the same constraint, a refusal of the busy tenant does not refuse the other tenant", async () => {
  const grammars = createGrammars(byteTokenizer);
  const { promise: end, resolve } = Promise.withResolvers<void>();
  const busy = { tenant: "busy", batch: false };
  const all = Array.from({ length: OF_TENANT + 64 }, () => compilers.run(busy, () => end));
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

/** Returns an ambiguous grammar whose masks take too much work, different for each `i`. */
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
