/**
 * compy beside its peers on this machine (`deno task bench:peers`): one process each, by turns, so that a slow moment of
 * the machine hits both. The peer is llama.cpp as npm's node-llama-cpp ships it, prebuilt.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { basename, fromFileUrl, resolve } from "@std/path";
import { median } from "./model.ts";
import { exists, installPeer, PEER, PEER_VERSION, ROOT, run, say, warnIfBusy } from "./peer.ts";

const HELP = `Compare with ${PEER} ${PEER_VERSION} on this machine, side by side.

Usage: deno task bench:peers --model FILE [options]

  --model FILE   the GGUF model that both run
  --pp N         tokens of each prompt (default 512)
  --tg N         tokens decoded after it (default 32)
  --npl LIST     how many sequences to decode side by side (default 1,16)
  --threads N    threads that compute (default: one a core)
  --rounds N     how often each has its turn (default 3)
  --json         one JSON object: {"model", "peer", "threads", "pp", "tg", "load_before",
                 "rows": [{"what", "unit", "compy", "peer", "ratio", "rounds": {"compy": […], "peer": […]}}, …]}
  --help         this text

Needs Node 20 or newer and npm: the peer is installed into .cache/ the first time (about 60 MB). It runs on the CPU, as
compy does. Figures are medians over the rounds; a ratio is compy's figure over the peer's, so above 1 is better for
tokens/s and below 1 for memory and loading. Let nothing else compute meanwhile: llama.cpp's threads wait for each other
spinning, so a busy machine slows it far more than its share.
Exit code: 0 done, 1 failed, 2 wrong usage.

Example:
  deno task bench:peers --model qwen3-0.6b-q8_0.gguf --pp 128 --npl 1,16
`;

interface Options {
  readonly model: string;
  readonly prefill: number;
  readonly decode: number;
  readonly sequences: readonly number[];
  readonly threads: number;
  readonly rounds: number;
  readonly json: boolean;
}

/** What both sides print. */
interface Report {
  readonly rows: { readonly work: string; readonly sequences: number; readonly tokens_per_second: number }[];
  readonly rss_mb: number;
  readonly load_ms: number;
}

interface Comparison {
  readonly what: string;
  readonly unit: string;
  readonly compy: number;
  readonly peer: number;
  readonly ratio: number;
  readonly rounds: { readonly compy: readonly number[]; readonly peer: readonly number[] };
}

class UsageError extends Error {}

function readOptions(args: readonly string[]): Options {
  const counts = ["pp", "tg", "threads", "rounds"];
  const parsed = parseArgs([...args], {
    string: ["model", "npl", ...counts],
    boolean: ["json"],
    unknown: (arg: string) => {
      throw new UsageError(`There is no option ${arg}`);
    },
  }) as Record<string, unknown>;
  const list = (name: string, most: number, fallback: string): number[] =>
    String(parsed[name] ?? fallback).split(",").map((text) => {
      const value = Number(text);
      if (/^\d+$/.test(text) && value >= 1 && value <= most) return value;
      throw new UsageError(`--${name} must be a whole number from 1 to ${most}, found "${text}"`);
    });
  const count = (name: string, most: number, fallback: number): number => {
    const [value, ...more] = list(name, most, String(fallback));
    if (more.length === 0) return value;
    throw new UsageError(`--${name} must be one whole number, found "${parsed[name]}"`);
  };
  if (!parsed.model) throw new UsageError("--model is wanted: the GGUF file that both run");
  // A task starts in the repository's folder; the path is the caller's.
  const model = resolve(Deno.env.get("INIT_CWD") ?? ".", String(parsed.model));
  return {
    model,
    prefill: count("pp", 1_000_000, 512),
    decode: count("tg", 1_000_000, 32),
    sequences: [...new Set(list("npl", 256, "1,16"))],
    threads: count("threads", 1024, navigator.hardwareConcurrency),
    rounds: count("rounds", 1000, 3),
    json: parsed.json === true,
  };
}

async function runCompy({ model, prefill, decode, sequences, threads }: Options): Promise<Report> {
  const flags = { model, pp: prefill, tg: decode, npl: sequences.join(","), threads };
  const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)]);
  return JSON.parse(
    await run("deno", ["run", "-q", "-P=compute", "main.ts", "bench", ...args, "--json"], ROOT),
  );
}

async function runPeer(
  { model, prefill, decode, sequences, threads }: Options,
  folder: string,
): Promise<Report> {
  const script = fromFileUrl(new URL("peer_node_llama_cpp.mjs", import.meta.url));
  const settings = JSON.stringify({ model, prefill, decode, sequences, threads });
  const lines = (await run("node", [script, settings], folder)).trim().split("\n");
  return JSON.parse(lines.at(-1)!); // llama.cpp may print before it
}

function compare(compy: readonly Report[], peer: readonly Report[], options: Options): Comparison[] {
  const row = (what: string, unit: string, figure: (report: Report) => number): Comparison => {
    const rounds = { compy: compy.map(figure), peer: peer.map(figure) };
    const [ours, theirs] = [median(rounds.compy), median(rounds.peer)];
    return { what, unit, compy: ours, peer: theirs, ratio: ours / theirs, rounds };
  };
  const rate = (work: string, sequences?: number) => (report: Report) =>
    report.rows.find((row) => row.work === work && (sequences ?? row.sequences) === row.sequences)!
      .tokens_per_second;
  return [
    row(`prefill of ${options.prefill}`, "tokens/s", rate("prefill")),
    ...options.sequences.map((n) => (
      row(`decode, ${n} at once`, "tokens/s", rate("decode", n))
    )),
    row("resident memory", "MB", ({ rss_mb }) => rss_mb),
    row("loading", "ms", ({ load_ms }) => load_ms),
  ];
}

function asTable(rows: readonly Comparison[], { model, threads, rounds, prefill }: Options): string {
  const range = (values: readonly number[]) =>
    `${Math.min(...values).toFixed(1)}-${Math.max(...values).toFixed(1)}`;
  const cells = rows.map(({ what, unit, compy, peer, ratio, rounds }) => [
    `${what}, ${unit}`,
    compy.toFixed(1),
    peer.toFixed(1),
    ratio.toFixed(2),
    range(rounds.compy),
    range(rounds.peer),
  ]);
  const table = [["", "compy", PEER, "ratio", "compy's range", "the other's"], ...cells]
    .map(([what, ...figures]) => what.padEnd(26) + figures.map((figure) => figure.padStart(16)).join(""));
  return [
    `${basename(model)}: ${threads} threads, prompts of ${prefill} tokens, medians of ${rounds} rounds`,
    "",
    ...table,
    "",
  ].join("\n");
}

function print(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text));
}

/** Returns the exit code. */
async function main(args: readonly string[]): Promise<number> {
  if (args.includes("--help") || args.includes("-h")) {
    print(HELP);
    return 0;
  }
  try {
    const options = readOptions(args);
    if (!await exists(options.model)) throw new Error(`Cannot find a model at ${options.model}`);
    const folder = await installPeer();
    const load = warnIfBusy();
    const compy: Report[] = [], peer: Report[] = [];
    for (let round = 1; round <= options.rounds; round++) {
      say(`round ${round} of ${options.rounds}: compy …`);
      compy.push(await runCompy(options));
      say(`round ${round} of ${options.rounds}: ${PEER} …`);
      peer.push(await runPeer(options, folder));
    }
    const rows = compare(compy, peer, options);
    const { prefill: pp, decode: tg, threads, model } = options;
    const json = {
      model: basename(model),
      peer: `${PEER} ${PEER_VERSION}`,
      threads,
      pp,
      tg,
      load_before: load,
      rows,
    };
    print(options.json ? `${JSON.stringify(json)}\n` : asTable(rows, options));
    return 0;
  } catch (error) {
    const usage = error instanceof UsageError;
    say(
      `Error: ${error instanceof Error ? error.message : error}${
        usage ? "\nSee: deno task bench:peers --help" : ""
      }`,
    );
    return usage ? 2 : 1;
  }
}

if (import.meta.main) Deno.exit(await main(Deno.args));
