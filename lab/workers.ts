import { parseArgs } from "@std/cli/parse_args.js";
import { fromFileUrl } from "@std/path";
import { median } from "../bench/samples.ts";

const HELP = `How much faster a batch gets with more workers over NATS, each slowed to one thread.

Usage: deno task bench:workers [options]

  --nats URL       a nats-server with JetStream (default nats://127.0.0.1; start one with: nats-server -js)
  --model FILE     the GGUF model (default: the one that comes with compy)
  --workers LIST   how many workers, by turns (default 1,2)
  --lines N        chats of the job, which differ from their first word on (default 96)
  --rounds N       how often each number has its turn (default 3)
  --help           this text

Rates are medians, without loading the model. Exit code: 0 done, 1 failed.
`;

const ROOT = fromFileUrl(new URL("..", import.meta.url));
const FOLDER = `${ROOT}.cache/bench-workers`;
const OUTPUT_TOKENS = 16;
const READY_MS = 120_000;

const options = parseArgs(Deno.args, {
  string: ["nats", "model", "workers", "lines", "rounds"],
  boolean: ["help"],
  default: { nats: "nats://127.0.0.1", workers: "1,2", lines: "96", rounds: "3" },
}) as { nats: string; model?: string; workers: string; lines: string; rounds: string; help: boolean };

function say(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${text}\n`));
}

function batch(args: string[]): Deno.ChildProcess {
  const all = ["run", "-q", "-P=batch", "main.ts", "batch", ...args, "--nats", options.nats, "--json"];
  const command = [...all, ...(options.model ? ["--model", options.model] : [])];
  return new Deno.Command("deno", {
    args: command,
    cwd: ROOT,
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
}

/** Yields the JSON lines that a command prints, with their times. */
async function* events(
  child: Deno.ChildProcess,
): AsyncGenerator<{ event: string; message?: string; at: number }> {
  let text = "";
  for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
    const lines = (text + part).split("\n");
    text = lines.pop()!;
    for (const line of lines) yield { ...JSON.parse(line), at: performance.now() };
  }
}

/** Resolves when the worker waits for runs. Its later output is read and dropped. */
async function startWorker(): Promise<Deno.ChildProcess> {
  const child = batch(["worker", "--threads", "1"]);
  const said = events(child);
  const until = performance.now() + READY_MS;
  for (;;) {
    const { value, done } = await said.next();
    if (done || performance.now() > until) throw new Error("A worker did not start");
    if (value.message?.includes("waits for runs")) break;
  }
  void Array.fromAsync(said);
  return child;
}

async function writeInput(path: string, model: string): Promise<void> {
  const lines = Array.from({ length: Number(options.lines) }, (_, n) => {
    const content = `${n} ferns grow by the river. Tell me what the small dinosaur did there in the morning.`;
    const body = { model, messages: [{ role: "user", content }], max_tokens: OUTPUT_TOKENS, temperature: 0 };
    return JSON.stringify({ custom_id: `q${n}`, method: "POST", url: "/v1/chat/completions", body });
  });
  await Deno.writeTextFile(path, lines.join("\n"));
}

/** Returns the seconds from the first line to the last. */
async function measure(workers: number): Promise<number> {
  await Deno.remove(FOLDER, { recursive: true }).catch(() => {});
  await Deno.mkdir(FOLDER, { recursive: true });
  const model = (options.model ?? "demo").replace(/^.*\//, "").replace(/\.gguf$/, "");
  await writeInput(`${FOLDER}/in.jsonl`, model);
  const children = await Promise.all(Array.from({ length: workers }, startWorker));
  let [started, ended] = [0, 0];
  for await (
    const { event, at } of events(batch(["run", `${FOLDER}/in.jsonl`, "--out", `${FOLDER}/out.jsonl`]))
  ) {
    if (event === "started") started = at;
    if (event === "done") ended = at;
  }
  for (const child of children) child.kill("SIGINT");
  await Promise.all(children.map((child) => child.status));
  if (ended === 0) throw new Error("The job failed");
  return (ended - started) / 1000;
}

if (options.help) {
  say(HELP.trimEnd());
  Deno.exit(0);
}
const counts: number[] = options.workers.split(",").map(Number);
const seconds = new Map<number, number[]>(counts.map((count) => [count, []]));
for (let round = 1; round <= Number(options.rounds); round++) {
  for (const [count, found] of seconds) {
    found.push(await measure(count));
    say(`round ${round}, ${count} workers of one thread: ${found.at(-1)!.toFixed(1)} s`);
  }
}
const first = median(seconds.get(counts[0])!);
for (const [count, found] of seconds) {
  const rate = Number(options.lines) / median(found);
  say(
    `${count} workers: median ${median(found).toFixed(1)} s, ${rate.toFixed(2)} lines/s, ${
      (first / median(found)).toFixed(2)
    } x`,
  );
}
