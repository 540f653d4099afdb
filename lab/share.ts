/**
 * Measures the share of a step's time outside the kernels: HTTP, JSON, JavaScript and masks (`deno task bench:share`).
 */
import { resolve } from "@std/path";
import { median } from "../bench/samples.ts";
import { command, endingWithThis, Options, print, ROOT, UsageError } from "../bench/shell.ts";
import { asTable } from "../bench/table.ts";

const HELP = `Measure what HTTP, JSON, masks and JavaScript take of a server's steps while streams decode.

Usage: deno task bench:share --model FILE.gguf [options]

  --streams N      answers that are streamed side by side (default 16)
  --tokens N       of each answer (default 100)
  --rounds N       (default 5)
  --form KIND      free, or schema: a JSON schema's text of any length (default free)
  --speculate S    as serve has it (default off)
  --json           one JSON object: {"model", "form", "streams", "rounds": [{"step_ms", "kernels_ms", …}], "share", "health_p99_ms"}
  --help           this text

A process's threads are told apart by their clocks and names. The kernels' threads all take what the one without a name of its own
takes, which runs in Deno's pool; the rest is not theirs, and share is the rest of all. In a last round a process of
its own asks for /health 50 times a second meanwhile. Linux only. Exit code: 0 done, 1 failed, 2 wrong usage.
`;

const FORM = {
  type: "object",
  properties: { name: { type: "string", minLength: 3000 }, n: { type: "integer" } },
  required: ["name", "n"],
};
const PROMPT_TOKENS = 32;
/** Number of tokens of each answer before and after a round, so that all answers decode during it. */
const MARGIN = 10;
/** Minimum share of tokens with text. Steps are counted by stream events, and tokens without text have no event. */
const LEAST_WITH_TEXT = 0.9;

/** Milliseconds of CPU time by thread name. */
type Clocks = ReadonlyMap<string, number>;

/** Milliseconds per step in a round, by thread. */
interface Round {
  readonly step_ms: number;
  readonly kernels_ms: number;
  readonly javascript_ms: number;
  /** Time of V8's own threads, mostly garbage collection. */
  readonly v8_ms: number;
  readonly masks_ms: number;
  readonly share: number;
}

interface Server {
  readonly url: string;
  readonly pid: number;
}

await command("bench:share", HELP, async () => {
  const names = ["model", "streams", "tokens", "rounds", "form", "speculate"];
  const options = new Options(Deno.args, names);
  const path = options.text("model");
  if (path === undefined) throw new UsageError("--model must name a GGUF file");
  const model = resolve(Deno.env.get("INIT_CWD") ?? ".", path);
  const streams = options.count("streams", 256, 16);
  const tokens = options.count("tokens", 4096, 100);
  if (tokens <= 3 * MARGIN) throw new UsageError(`--tokens must be more than ${3 * MARGIN} (got ${tokens})`);
  const form = options.choice("form", ["free", "schema"], "free");
  const speculate = options.choice("speculate", ["off", "auto", "lookup", "mtp"], "off");
  const rounds: Round[] = [];
  const health: number[] = [];
  await withServer(
    ["--model", model, "--parallel", `${streams}`, "--speculate", speculate],
    async (server) => {
      const ask = { streams, tokens, form };
      await round(server, ask); // warms up
      for (let i = 0; i < options.count("rounds", 100, 5); i++) rounds.push(await round(server, ask));
      await round(server, ask, health);
    },
  );
  const share = median(rounds.map(({ share }) => share));
  const health_p99_ms = health.toSorted((a, b) => a - b)[Math.floor(0.99 * health.length)];
  if (options.json) {
    return print(`${JSON.stringify({ model, form, streams, rounds, share, health_p99_ms })}\n`);
  }
  print(tableOf(rounds));
  print(`${(100 * share).toFixed(1)} % of the steps' CPU time is not the kernels' (median)\n`);
  print(`/health: ${health.length} asked, 99 of 100 answered within ${health_p99_ms.toFixed(1)} ms\n`);
});

function tableOf(rounds: readonly Round[]): string {
  const head = ["ms a step", "time", "kernels", "JavaScript", "V8", "masks", "share"];
  return asTable([
    head,
    ...rounds.map(({ step_ms, kernels_ms, javascript_ms, v8_ms, masks_ms, share }, i) => [
      `round ${i + 1}`,
      ...[step_ms, kernels_ms, javascript_ms, v8_ms, masks_ms].map((ms) => ms.toFixed(2)),
      `${(100 * share).toFixed(1)} %`,
    ]),
  ]);
}

async function withServer(args: readonly string[], body: (server: Server) => Promise<void>): Promise<void> {
  const child = new Deno.Command("deno", {
    args: ["run", "-q", "-P=serve", "main.ts", "serve", "--port", "0", "--data", "none", ...args],
    cwd: ROOT,
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  using _ = endingWithThis(child);
  try {
    let said = "";
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      said += text;
      const url = /listening on (\S+)\n/.exec(said)?.[1];
      if (url) return await body({ url, pid: child.pid });
    }
    throw new Error("The server did not start");
  } finally {
    child.kill("SIGTERM");
    await child.status;
  }
}

/**
 * Streams answers, and measures while all of them decode. Adds the response times of /health in milliseconds to
 * `health`.
 */
async function round(
  { url, pid }: Server,
  { streams, tokens, form }: { streams: number; tokens: number; form: "free" | "schema" },
  health?: number[],
): Promise<Round> {
  const counts = new Array<number>(streams).fill(0);
  let clocks = { at: 0, events: 0, cpu: new Map() as Clocks };
  let [begun, ended] = [Promise.resolve(), Promise.resolve()];
  const all = () => counts.reduce((sum, count) => sum + count, 0);
  let [running, over] = [false, false];
  let taken: typeof clocks | undefined;
  const now = async () => ({ at: performance.now(), events: all(), cpu: await clocksOf(pid) });
  const noted = () => {
    if (!running && Math.min(...counts) > MARGIN) {
      running = true;
      begun = now().then((start) => void (clocks = start));
    } else if (running && !over && Math.max(...counts) > tokens - MARGIN) {
      over = true;
      ended = now().then((end) => void (taken = end));
    }
  };
  const answers = Promise.all(counts.map(async (_, i) => {
    const prompt = Array.from({ length: PROMPT_TOKENS }, (_, k) => 100 + (i * 37 + k * 11) % 1000);
    const body = { prompt, max_tokens: tokens, temperature: 1, seed: i, stream: true, ignore_eos: true };
    for await (const events of streamed(url, form === "schema" ? { ...body, json_schema: FORM } : body)) {
      counts[i] += events;
      noted();
    }
  })).finally(() => over = true);
  const asked = health && askHealth(url);
  await answers;
  await Promise.all([begun, ended]);
  const counted = all() / (streams * tokens);
  if (counted < LEAST_WITH_TEXT) {
    const share = `${Math.round(100 * counted)} %`;
    throw new Error(
      `Only ${share} of the tokens have text, and steps are counted by tokens with text: use a model with a real tokenizer`,
    );
  }
  if (!taken) {
    throw new Error("The answers did not decode concurrently for long enough: use more --tokens");
  }
  const { at: end } = taken;
  for (const [at, ms] of await asked?.() ?? []) {
    const start = at - performance.timeOrigin;
    if (start >= clocks.at && start + ms <= end) health!.push(ms);
  }
  return roundOf(clocks, taken, (taken.events - clocks.events) / streams);
}

/**
 * Requests /health from a separate process, because this process is busy with the streams. Returns a function that ends
 * it and returns each request's start (Unix time) and response time, in milliseconds.
 */
function askHealth(url: string): () => Promise<[at: number, ms: number][]> {
  const child = new Deno.Command("deno", {
    args: ["run", "-q", "--allow-net=127.0.0.1", "lab/share_health.ts", `${url}/health`],
    cwd: ROOT,
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const ending = endingWithThis(child);
  const said = new Response(child.stdout).text();
  return async () => {
    ending[Symbol.dispose]();
    child.kill("SIGTERM");
    return (await said).trimEnd().split("\n").map((line) => line.split(" ").map(Number) as [number, number]);
  };
}

/** Yields the number of events in each received chunk of the response. */
async function* streamed(url: string, body: object): AsyncGenerator<number> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`The server answered with ${response.status}: ${await response.text()}`);
  for await (const text of response.body!.pipeThrough(new TextDecoderStream())) {
    yield text.split("data: {").length - 1;
  }
}

/**
 * Returns the CPU time of each thread of a process. A shell reads it, because Deno does not allow access to /proc of
 * other processes.
 */
async function clocksOf(pid: number): Promise<Clocks> {
  const script =
    'cd "/proc/$0/task" && for t in *; do read -r n < $t/comm && read -r c _ < $t/schedstat && echo "$c $n"; done';
  const { stdout } = await new Deno.Command("sh", { args: ["-c", script, `${pid}`], stderr: "null" })
    .output();
  const clocks = new Map<string, number>();
  for (const line of new TextDecoder().decode(stdout).trimEnd().split("\n")) {
    const [, nanoseconds, name] = /^(\d+) (.*)$/.exec(line) ?? [];
    if (name === undefined) continue;
    clocks.set(name, (clocks.get(name) ?? 0) + Number(nanoseconds) / 1e6);
  }
  return clocks;
}

function roundOf(
  start: { at: number; cpu: Clocks },
  end: { at: number; cpu: Clocks },
  steps: number,
): Round {
  const sum = (...names: RegExp[]) => {
    let all = 0;
    for (const [name, ms] of end.cpu) {
      if (names.some((pattern) => pattern.test(name))) all += ms - (start.cpu.get(name) ?? 0);
    }
    return all / steps;
  };
  const own = [...end.cpu.keys()].filter((name) => /^compy-\d/.test(name)).length;
  if (own === 0) {
    throw new Error("Cannot identify the kernels' threads: needs Linux and at least two threads");
  }
  const kernels_ms = sum(/^compy-\d/) * (own + 1) / own;
  const [everything, javascript_ms, v8_ms] = [sum(/./), sum(/^deno$/), sum(/^V8/i)];
  const masks_ms = Math.max(0, everything - kernels_ms - javascript_ms - v8_ms);
  const step_ms = (end.at - start.at) / steps;
  const share = (javascript_ms + v8_ms + masks_ms) / everything;
  return { step_ms, kernels_ms, javascript_ms, v8_ms, masks_ms, share };
}
