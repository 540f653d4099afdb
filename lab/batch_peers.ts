/**
 * Compares compy with a peer on a batch file (`deno task bench:batch`), and compy's batch with the speed of its kernels
 * alone. Each runs in its own process, in turn.
 */
import { basename, fromFileUrl, join, resolve } from "@std/path";
import { median } from "../bench/samples.ts";
import { exists, installPeer, PEER, PEER_VERSION, warnIfBusy } from "./peer.ts";
import { command, Options, print, ROOT, run, say, UsageError } from "../bench/shell.ts";

const HELP =
  `Answer a batch file whose lines share a long beginning, with compy and with ${PEER} ${PEER_VERSION}.

Usage: deno task bench:batch --model FILE [options]

  --model FILE    the GGUF model that both run
  --lines N       lines of the file (default 2000)
  --shared N      about how many tokens all prompts begin with (default 400)
  --answer N      tokens of each answer (default 32)
  --parallel N    sequences at once (default 16)
  --threads N     threads that compute (default: one a core)
  --rounds N      how often each has its turn (default 1)
  --json          one JSON object: {"model", "peer", "lines", …, "compy", "bench", "peer_rate", "ratio", "share"}
  --help          this text

Rates are lines a second without loading the model, medians over the rounds. "bench" is what the same tokens would take
at the rates that deno task bench finds, with as many sequences: the shared tokens once, the rest of each prompt, each
answer. Needs Node 20 or newer and npm: the peer is installed into .cache/ the first time (about 60 MB). Let nothing else
compute meanwhile.
Exit code: 0 done, 1 failed, 2 wrong usage.

Example:
  deno task bench:batch --model qwen3-0.6b-q8_0.gguf --lines 64 --answer 16
`;

interface Asked {
  readonly model: string;
  readonly lines: number;
  readonly shared: number;
  readonly answer: number;
  readonly parallel: number;
  readonly threads: number;
  readonly rounds: number;
  readonly json: boolean;
}

/** One round's seconds, without loading the model, and its tokens. */
interface Round {
  readonly seconds: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
}

function readOptions(): Asked {
  const options = new Options(Deno.args, [
    ...["model", "lines", "shared", "answer", "parallel", "threads", "rounds"],
  ]);
  const model = options.text("model");
  if (!model) throw new UsageError("--model is wanted: the GGUF file that both run");
  const count = (name: string, fallback: number) => options.count(name, 999_999, fallback);
  return {
    // A task starts in the repository's folder, but the path is relative to the caller's folder.
    model: resolve(Deno.env.get("INIT_CWD") ?? ".", model),
    lines: count("lines", 2000),
    shared: count("shared", 400),
    answer: count("answer", 32),
    parallel: count("parallel", 16),
    threads: count("threads", navigator.hardwareConcurrency),
    rounds: count("rounds", 1),
    json: options.json,
  };
}

const RULE = "You answer in one short sentence, you name no sources, and you never guess.\n";
const TOPICS = [
  "a river",
  "the moon",
  "an old bridge",
  "bread",
  "a quiet street",
  "winter",
  "a small engine",
];

/** The batch file that both programs answer. */
interface Input {
  readonly path: string;
  /** Number of tokens that all prompts share. */
  readonly common: number;
  /** Maximum tokens of a line's prompt and answer together. */
  readonly context: number;
}

async function writeInput({ lines, shared, answer, model }: Asked, folder: string): Promise<Input> {
  const count = async (text: string): Promise<number> => {
    const file = join(folder, "text");
    await Deno.writeTextFile(file, text);
    const args = [
      "run",
      "-q",
      "-P=compute",
      "main.ts",
      "tokenize",
      "--model",
      model,
      "--file",
      file,
      "--json",
    ];
    return JSON.parse(await run("deno", args, ROOT)).tokens.length;
  };
  const beginning = RULE.repeat(Math.max(1, Math.round(shared / await count(RULE))));
  const prompts = Array.from(
    { length: lines },
    (_, n) =>
      `${beginning}Question ${n}: what is there to say of ${TOPICS[n % TOPICS.length]}, in ${n} words?\n`,
  );
  const path = join(folder, "in.jsonl");
  const id = basename(model).replace(/\.gguf$/, "");
  // With `ignore_eos`, all answers have the same length, even from a model that would end some of them earlier.
  const texts = prompts.map((prompt, n) => {
    const body = { model: id, prompt, max_tokens: answer, temperature: 0, ignore_eos: true };
    return JSON.stringify({ custom_id: `q${n}`, method: "POST", url: "/v1/completions", body });
  });
  await Deno.writeTextFile(path, texts.join("\n"));
  const longest = prompts.reduce((a, b) => b.length >= a.length ? b : a);
  // Another prompt of the same text length may have a few more tokens.
  return { path, common: await count(beginning), context: await count(longest) + answer + 16 };
}

async function runCompy(options: Asked, input: Input, folder: string): Promise<Round> {
  const { model, parallel, threads } = options;
  const output = join(folder, "out.jsonl");
  const left = [output, `${output}.journal`, join(folder, "out.errors.jsonl")];
  for (const path of left) if (await exists(path)) await Deno.remove(path);
  const flags = { out: output, model, parallel, threads, ctx: input.context };
  const child = new Deno.Command("deno", {
    args: ["run", "-q", "-P=batch", "main.ts", "batch", "run", input.path, "--json"]
      .concat(Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)])),
    cwd: ROOT,
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  let started = 0;
  let round: Round | undefined;
  let rest = "";
  for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
    const found = (rest + text).split("\n");
    rest = found.pop()!;
    for (const event of found.map((line) => JSON.parse(line))) {
      if (event.event === "started") started = performance.now();
      if (event.event !== "done" || event.failed > 0) continue;
      const seconds = (performance.now() - started) / 1000;
      round = { seconds, promptTokens: event.prompt_tokens, outputTokens: event.output_tokens };
    }
  }
  if (!(await child.status).success || !round) {
    throw new Error(`compy did not answer all lines of the file; see ${folder}`);
  }
  return round;
}

async function runPeer(options: Asked, input: Input, peerFolder: string): Promise<Round> {
  const { model, parallel, threads } = options;
  const script = fromFileUrl(new URL("batch_peer_node_llama_cpp.mjs", import.meta.url));
  const { path, context } = input;
  const settings = JSON.stringify({ model, input: path, parallel, threads, context });
  const lines = (await run("node", [script, settings], peerFolder)).trim().split("\n");
  const report = JSON.parse(lines.at(-1)!); // llama.cpp may print lines before it
  return { seconds: report.seconds, promptTokens: report.prompt_tokens, outputTokens: report.output_tokens };
}

/** Returns the seconds for the tokens of `round` at the speed of the kernels alone. */
async function runBench(
  options: Asked,
  { common }: Input,
  { promptTokens, outputTokens }: Round,
): Promise<number> {
  const { model, lines, answer, parallel, threads } = options;
  const prompt = Math.round(promptTokens / lines);
  const flags = { model, threads, pp: prompt, tg: answer, npl: parallel };
  const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const bench = await run("deno", ["run", "-q", "-P=compute", "main.ts", "bench", ...args, "--json"], ROOT);
  const { rows } = JSON.parse(bench) as { rows: { work: string; tokens_per_second: number }[] };
  const rate = (work: string) => rows.find((row) => row.work === work)!.tokens_per_second;
  return (common + lines * (prompt - common)) / rate("prefill") + outputTokens / rate("decode");
}

await command("bench:batch", HELP, async () => {
  const options = readOptions();
  if (!await exists(options.model)) throw new Error(`Cannot find a model at ${options.model}`);
  const peerFolder = await installPeer();
  const load = warnIfBusy();
  const folder = join(ROOT, ".cache", "bench-batch");
  await Deno.mkdir(folder, { recursive: true });
  const input = await writeInput(options, folder);
  const seconds = { compy: [] as number[], bench: [] as number[], peer: [] as number[] };
  for (let round = 1; round <= options.rounds; round++) {
    say(`round ${round} of ${options.rounds}: compy …`);
    const compy = await runCompy(options, input, folder);
    seconds.compy.push(compy.seconds);
    say(`round ${round} of ${options.rounds}: its kernels alone …`);
    seconds.bench.push(await runBench(options, input, compy));
    say(`round ${round} of ${options.rounds}: ${PEER} …`);
    seconds.peer.push((await runPeer(options, input, peerFolder)).seconds);
  }
  const rate = (values: number[]) => options.lines / median(values);
  const [compy, bench, peer] = [rate(seconds.compy), rate(seconds.bench), rate(seconds.peer)];
  const { lines, shared, answer, parallel, threads } = options;
  const figures = { compy, bench, peer_rate: peer, ratio: compy / peer, share: compy / bench, seconds };
  const model = basename(options.model);
  if (options.json) {
    const setting = { model, peer: `${PEER} ${PEER_VERSION}`, lines, shared, answer, parallel, threads };
    return print(`${JSON.stringify({ ...setting, load_before: load, ...figures })}\n`);
  }
  print([
    `${model}: ${lines} lines with about ${shared} tokens in common, ${answer} of answer, ${parallel} at once`,
    "",
    `compy            ${compy.toFixed(2)} lines/s`,
    `its kernels      ${bench.toFixed(2)} lines/s; the batch has ${(compy / bench).toFixed(2)} of that`,
    `${PEER}   ${peer.toFixed(2)} lines/s; compy has ${(compy / peer).toFixed(2)} times that`,
    "",
  ].join("\n"));
});
