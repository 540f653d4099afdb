import { assert, assertEquals, assertStringIncludes, fail } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { natsTarget } from "../../cli/batch/nats_target.ts";
import { openConnection } from "../../jobs/nats/connection.ts";
import { RUNS_SUBJECT, runSubject } from "../../jobs/nats/wire.ts";
import { campaign } from "./nats_scenario.ts";
import { NatsServer, natsServerPath } from "./nats_server.ts";
import { testSeed } from "../../testing/random.ts";
import { fullTier } from "../../testing/tier.ts";

/*
 * Batches over NATS with a real nats-server on loopback. Without one the tests are skipped and say so;
 * COMPY_NATS_REQUIRED makes that a failure.
 */

const ROOT = fromFileUrl(new URL("../..", import.meta.url));
const ignore = natsServerPath() === undefined;
if (ignore) {
  const why = "no nats-server found (Debian: apt install nats-server; or set COMPY_NATS_SERVER to its path)";
  if (Deno.env.get("COMPY_NATS_REQUIRED")) {
    throw new Error(`The tests of batches over NATS cannot run: ${why}`);
  }
  Deno.stderr.writeSync(new TextEncoder().encode(`Batches over NATS are not tested: ${why}\n`));
}

fullTier.test({
  name:
    "batch over NATS: queue wiped, workers killed and stalled, server and coordinator killed; nothing lost or doubled",
  ignore,
  fn: async () => {
    const report = await campaign({ disturbances: 14, lines: 280, lineMs: 150, seed: testSeed() });
    assertEquals([report.lost, report.doubled, report.same], [0, 0, true]);
    assertEquals(Object.values(report.kinds).reduce((sum, n) => sum + n), 14);
  },
});

/** A real `batch` command, with the task's permissions. */
class Command {
  private readonly child: Deno.ChildProcess;
  private readonly reading: Promise<void>[];
  text = "";

  constructor(args: string[], env: Record<string, string> = {}) {
    this.child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-q", "-P=batch", "main.ts", "batch", ...args],
      cwd: ROOT,
      env,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    this.reading = [this.child.stdout, this.child.stderr].map((stream) => this.read(stream));
  }

  interrupt(): void {
    this.child.kill("SIGINT");
  }

  /** Waits until the output contains this text. */
  async said(words: string): Promise<void> {
    for (const until = performance.now() + 20_000; !this.text.includes(words);) {
      assert(performance.now() < until, `"${words}" was not said, but: ${this.text}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async end(): Promise<number> {
    const { code } = await this.child.status;
    await Promise.all(this.reading);
    return code;
  }

  private async read(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<void> {
    for await (const part of stream.pipeThrough(new TextDecoderStream())) this.text += part;
  }
}

/** The request of line `n`: mostly a completion, sometimes for another endpoint. */
function asked(n: number): { url: string; body: Record<string, unknown> } {
  const text = `Story ${n}`;
  const most = 8 + n % 17;
  const steady = { model: "demo", temperature: 0 };
  switch (n % 10) {
    case 7:
      return { url: "/v1/responses", body: { ...steady, input: text, max_output_tokens: most } };
    case 8: {
      const messages = [{ role: "user", content: text }];
      return { url: "/v1/messages", body: { ...steady, messages, max_tokens: most } };
    }
    case 9:
      return { url: "/v1/embeddings", body: { model: "demo", input: text } };
    default:
      return { url: "/v1/completions", body: { ...steady, prompt: text, max_tokens: most } };
  }
}

async function withJob(
  lines: number,
  test: (path: (name: string) => string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "batch-nats-cli-" });
  const text = Array.from({ length: lines }, (_, n) => {
    const { url, body } = asked(n);
    // One line exceeds the size of a NATS message.
    if (n === 5) Object.assign(body, { user: "x".repeat(1_500_000) });
    return JSON.stringify({ custom_id: `q${n}`, method: "POST", url, body });
  });
  await Deno.writeTextFile(`${folder}/in.jsonl`, text.join("\n"));
  try {
    await test((name) => `${folder}/${name}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Returns a body without ids, times and cache hits. */
function lasting(body: unknown): unknown {
  const anew = new Set(["id", "created", "created_at", "completed_at", "prompt_tokens_details"]);
  const found = new Set(["input_tokens", "input_tokens_details", "cache_read_input_tokens"]);
  return JSON.parse(
    JSON.stringify(body, (key, value) => anew.has(key) || found.has(key) ? undefined : value),
  );
}

async function answers(path: string): Promise<unknown[]> {
  return (await Deno.readTextFile(path)).trimEnd().split("\n").map((line) => {
    const { response: { status_code, body }, ...rest } = JSON.parse(line);
    return { ...rest, status_code, body: lasting(body) };
  });
}

fullTier.test({
  name:
    "batch run --nats: workers give the answers that one process gives; another model is refused by name; Ctrl-C",
  ignore,
  fn: async () => {
    await using server = await NatsServer.start(["-js", "--user", "me", "--pass", "secret"]);
    await withJob(60, async (path) => {
      const credentials = { NATS_USER: "me", NATS_PASSWORD: "secret" };
      const { port } = server;
      const one = new Command([
        "worker",
        "--nats",
        `nats://me:secret@127.0.0.1:${port}`,
        "--name",
        "one",
        "--threads",
        "1",
      ]);
      const two = new Command(["worker", "--name", "two", "--threads", "1"], {
        ...credentials,
        NATS_URL: server.url,
      });
      const other = new Command(
        ["worker", "--nats", server.url, "--name", "other", "--ctx", "64"],
        credentials,
      );
      const workers = [one, two, other];
      for (const worker of workers) await worker.said("waits for runs");

      const run = new Command(
        ["run", path("in.jsonl"), "--out", path("out.jsonl"), "--nats", server.url],
        credentials,
      );
      assertEquals(await run.end(), 0, run.text);
      assertStringIncludes(run.text, "takes part, 16 lines at once");
      assertStringIncludes(run.text, "the run wants context length 512, the worker has 64");
      await Deno.writeTextFile(path("in.csv"), `n,of\n${"1,cats\n2,\n3,dogs\n".repeat(8)}`);
      const table = ["run", path("in.csv"), "--prompt", "{of}", "--system", "Be brief", "--max-tokens", "4"];
      const asked = new Command([...table, "--out", path("out.csv"), "--nats", server.url], credentials);
      assertEquals(await asked.end(), 0, asked.text);
      const named = { model: "gpt-4o-mini", prompt: "Once", max_tokens: 4 };
      const lines = Array.from(
        { length: 6 },
        (_, n) => JSON.stringify({ custom_id: `q${n}`, method: "POST", url: "/v1/completions", body: named }),
      );
      await Deno.writeTextFile(path("alias.jsonl"), lines.join("\n"));
      const aliased = [
        "run",
        path("alias.jsonl"),
        "--out",
        path("alias.out.jsonl"),
        "--alias",
        "gpt-4o-mini",
      ];
      for (const [limit, words] of [[["--limit", "4"], "4 answers in "], [[], "6 answers in "]] as const) {
        const args = [...aliased, ...limit, "--fail-on-errors", "--nats", server.url];
        const some = new Command(args, credentials);
        assertEquals(await some.end(), 0, some.text);
        assertStringIncludes(some.text, words);
      }
      await other.said("Refused by run");
      for (const worker of workers) {
        await worker.said(worker === other ? "Refused" : "has ended");
        worker.interrupt();
        assertEquals(await worker.end(), 0, worker.text);
        assertStringIncludes(worker.text, "Stopped; ");
      }
      assertEquals([...run.text, one.text, two.text].includes("secret"), false);

      const local = new Command(["run", path("in.jsonl"), "--out", path("local.jsonl")]);
      assertEquals(await local.end(), 0, local.text);
      assertEquals(await answers(path("out.jsonl")), await answers(path("local.jsonl")));
      const alone = new Command([...table, "--out", path("local.csv")]);
      assertEquals(await alone.end(), 0, alone.text);
      const [far, near] = await Promise.all(
        ["out.csv", "local.csv"].map((name) => Deno.readTextFile(path(name))),
      );
      assertEquals(far, near);
      assertEquals(near.split("\n").filter((row) => row.includes("the prompt would be empty")).length, 8);
    });
  },
});

fullTier.test({
  name:
    "batch run --nats: without workers it says so and stops at once on Ctrl-C; without server or JetStream it says what to do",
  ignore,
  fn: async () => {
    await withJob(20, async (path) => {
      const job = ["run", path("in.jsonl"), "--out", path("out.jsonl"), "--nats"];
      const server = await NatsServer.start();
      const waiting = new Command([...job, server.url]);
      await waiting.said("0 of 20 lines");
      waiting.interrupt();
      assertEquals(await waiting.end(), 1);
      assertStringIncludes(waiting.text, "the same command resumes the job");
      await server[Symbol.asyncDispose]();

      const absent = new Command([...job, server.url]);
      assertEquals(await absent.end(), 1);
      assertStringIncludes(absent.text, `Cannot reach a NATS server at 127.0.0.1:${server.port}`);

      await using plain = await NatsServer.start([]);
      const without = new Command([...job, plain.url]);
      assertEquals(await without.end(), 1);
      assertStringIncludes(
        without.text,
        'has no JetStream for this account; start it with "nats-server -js"',
      );

      const wrong = new Command([...job, "ftp://somewhere"]);
      assertEquals(await wrong.end(), 2);
      assertStringIncludes(wrong.text, 'the scheme "ftp" is not known');
    });
  },
});

fullTier.test({
  name: "batch run --nats: malformed messages get an error, and the run continues",
  ignore,
  fn: async () => {
    await using server = await NatsServer.start();
    await withJob(20, async (path) => {
      const run = new Command(["run", path("in.jsonl"), "--out", path("out.jsonl"), "--nats", server.url]);
      const { nats } = await openConnection(
        natsTarget(server.url, undefined, () => undefined),
        "stranger",
        () => {},
      );
      const called = new Promise<string>((resolve) => {
        nats.subscribe(RUNS_SUBJECT, {
          callback: (_, message) => resolve(message.json<{ run: string }>().run),
        });
      });
      const id = await Promise.race([called, run.end().then(() => fail(run.text))]);
      const attempt = crypto.randomUUID();
      const bad: [string, string][] = [
        ["join", "no JSON\n"],
        ["join", "{}\n"],
        ["take", `{"line":0,"attempt":"${attempt}","worker":"a b","offset":0}\n`],
        ["answer", `{"line":0,"attempt":"${attempt}","offset":0,"total":1e99}\n`],
        ["leave", "[]\n"],
        ["take", ""],
        ["nonsense", "{}\n"],
      ];
      for (const [verb, message] of bad) {
        const reply = await nats.request(runSubject(id, verb as "join"), message, { timeout: 5000 });
        assertStringIncludes(reply.string(), '"error"', verb);
      }
      const ask = async (verb: "take" | "answer", head: unknown) =>
        JSON.parse(
          (await nats.request(runSubject(id, verb), `${JSON.stringify(head)}\n`)).string().split("\n")[0],
        ).state;
      assertEquals(await ask("take", { line: 0, attempt, worker: "nobody", offset: 0 }), "stranger");
      const unknown = { line: 0, attempt, offset: 0, total: 2 };
      for (let n = 0; n < 100 && await ask("answer", unknown) === "gone"; n++) {
        await new Promise((resolve) => setTimeout(resolve, 50)); // the lines have not been read yet
      }
      assertEquals(await ask("answer", unknown), "fenced");
      assertEquals(await ask("answer", { line: 9999, attempt, offset: 0, total: 2 }), "gone");
      await nats.close();

      const worker = new Command(["worker", "--nats", server.url]);
      assertEquals(await run.end(), 0, run.text);
      worker.interrupt();
      assertEquals(await worker.end(), 0);
    });
  },
});

fullTier.test({
  name: "batch cancel: ends a job that waits for workers, and a later worker finds no lines",
  ignore,
  fn: async () => {
    await using server = await NatsServer.start();
    await withJob(20, async (path) => {
      const files = [path("in.jsonl"), "--out", path("out.jsonl")];
      const run = new Command(["run", ...files, "--nats", server.url]);
      await run.said("0 of 20 lines");
      const cancel = new Command(["cancel", ...files]);
      assertEquals(await cancel.end(), 0, cancel.text);
      assertStringIncludes(cancel.text, "Cancelled: 0 answers");
      assertEquals(await run.end(), 1, run.text); // no line was answered
      const errors = (await Deno.readTextFile(path("out.errors.jsonl"))).trimEnd().split("\n");
      assertEquals(errors.map((line) => JSON.parse(line).error.code), Array(20).fill("batch_cancelled"));

      const worker = new Command(["worker", "--nats", server.url]);
      await worker.said("waits for runs");
      await new Promise((resolve) => setTimeout(resolve, 1500));
      worker.interrupt();
      assertEquals(await worker.end(), 0);
      assertStringIncludes(worker.text, "Stopped; 0 lines answered");
    });
  },
});
