/**
 * Compares compy with a peer on this machine (`deno task bench:peers`). Each runs in its own process, in turn, so that
 * a slow moment of the machine affects both.
 */
import { basename, resolve } from "@std/path";
import { median } from "../bench/samples.ts";
import { type Arithmetic, ARITHMETICS } from "../engine/mod.ts";
import { exists, PEER, PEER_VERSION, type PeerBackend, warnIfBusy } from "./peer.ts";
import { type Peer, PEER_CHOICES, peerOf } from "./peers/peer.ts";
import type { PeerReport, Work } from "./peers/report.ts";
import { command, loadAverage, Options, print, ROOT, run, say, UsageError } from "../bench/shell.ts";
import { asTable, percent } from "../bench/table.ts";

const HELP = `Compare with another program on this machine, side by side.

Usage: deno task bench:peers --model FILE [options]

  --model FILE   the GGUF model that both run
  --peer NAME    ${PEER_CHOICES} (default llama.cpp):
                 llama.cpp, as npm's ${PEER} ${PEER_VERSION} ships it; OpenVINO GenAI, as PyPI ships it; or a program named
                 llama-bench or llama-batched-bench, of llama.cpp or a fork of it; the first decodes one sequence only
  --peer-args=T  more arguments of that program, between blanks, such as --peer-args="-rtr -fa on"
  --pp N         tokens of each prompt (default 512)
  --tg N         tokens decoded after it (default 32)
  --npl LIST     how many sequences to decode side by side (default 1,16)
  --threads N    threads that compute (default: one a core)
  --isa NAME     instruction set of compy (default: the best that this CPU has); a peer takes what it was built for
  --backend NAME cpu, or webgpu: compy on WebGPU beside llama.cpp on Vulkan, or Metal on a Mac (default cpu)
  --arithmetic A of compy's matrix products on the GPU: f32 or f16 (default f32)
  --rounds N     how often each has its turn (default 3)
  --json         one JSON object: {"date", "machine": {"cpu", "cores"}, "model", "peer", "threads", "pp", "tg", "load_averages",
                 "backend", "arithmetic", "isa": {"compy", "peer"}, "limits": {"read_gbps", "int8_gops", "f32_gflops"},
                 "rows": [{"what", "unit", "compy", "peer", "ratio", "share_of_limit",
                           "rounds": {"compy": […], "peer": […], "ratio": […]}}, …]}
  --help         this text

Peers are installed into .cache/ the first time: llama.cpp needs Node 20 or newer and npm (about 60 MB), OpenVINO GenAI Python 3.11
or newer (about 400 MB); it reads llama, qwen2 and qwen3 models in F16, Q8_0, Q4_0, Q4_1, Q4_K and Q6_K. Figures are medians over all
rounds, with the lowest and highest beside them; a ratio is compy's figure over the peer's, so above 1 is better for tokens/s and below 1
for memory and loading; its range is that of single rounds. The limit of a decode on a GPU is what reading weights and KV cache at the
speed of a copy would allow. Let nothing else compute meanwhile: llama.cpp's threads wait for each other spinning, so a busy machine
slows it far more than its share.
Exit code: 0 done, 1 failed, 2 wrong usage.

Example:
  deno task bench:peers --model qwen3-0.6b-q8_0.gguf --pp 128 --npl 1,16
`;

interface Settings extends Work {
  readonly peer: Peer;
  readonly isa?: string;
  readonly backend: PeerBackend;
  readonly arithmetic: Arithmetic;
  readonly rounds: number;
  readonly json: boolean;
}

interface Comparison {
  readonly what: string;
  readonly unit: string;
  readonly compy: number;
  readonly peer: number;
  readonly ratio: number;
  /** Share of the machine's limit that compy reached; undefined for peers. */
  readonly share_of_limit?: number;
  readonly rounds: Record<"compy" | "peer" | "ratio", readonly number[]>;
}

function readOptions(): Settings {
  const options = new Options(Deno.args, [
    "model",
    "npl",
    "pp",
    "tg",
    "threads",
    "isa",
    "peer",
    "peer-args",
    "rounds",
    "backend",
    "arithmetic",
  ]);
  const path = options.text("model");
  if (!path) throw new UsageError("--model is wanted: the GGUF file that both run");
  // A task starts in the repository's folder, but paths are relative to the caller's folder.
  const folder = resolve(Deno.env.get("INIT_CWD") ?? ".");
  const backend = options.choice("backend", ["cpu", "webgpu"], "cpu");
  const more = (options.text("peer-args") ?? "").split(" ").filter((word) => word !== "");
  return {
    model: resolve(folder, path),
    peer: peerOf(options.text("peer") ?? "llama.cpp", backend, more, folder),
    isa: options.text("isa"),
    prefill: options.count("pp", 1_000_000, 512),
    decode: options.count("tg", 1_000_000, 32),
    sequences: [...new Set(options.counts("npl", 256, "1,16"))],
    threads: options.count("threads", 1024, navigator.hardwareConcurrency),
    backend,
    arithmetic: options.choice("arithmetic", ARITHMETICS, "f32"),
    rounds: options.count("rounds", 1000, 3),
    json: options.json,
  };
}

async function runCompy(settings: Settings): Promise<PeerReport> {
  const { model, prefill, decode, sequences, threads, backend, arithmetic, isa } = settings;
  const flags = { model, pp: prefill, tg: decode, npl: sequences.join(","), threads, backend, arithmetic };
  const args = Object.entries(isa ? { ...flags, isa } : flags)
    .flatMap(([name, value]) => [`--${name}`, String(value)]);
  return JSON.parse(
    await run("deno", ["run", "-q", "-P=compute", "main.ts", "bench", ...args, "--json"], ROOT),
  );
}

function runPeer({ model, prefill, decode, sequences, threads, peer }: Settings): Promise<PeerReport> {
  return peer.measure({ model, prefill, decode, sequences, threads });
}

function compare(
  compy: readonly PeerReport[],
  peer: readonly PeerReport[],
  settings: Settings,
): Comparison[] {
  const row = (what: string, unit: string, figure: (report: PeerReport) => number): Comparison => {
    const rounds = {
      compy: compy.map(figure),
      peer: peer.map(figure),
      ratio: compy.map((report, i) => figure(report) / figure(peer[i])),
    };
    const [ours, theirs] = [median(rounds.compy), median(rounds.peer)];
    return { what, unit, compy: ours, peer: theirs, ratio: ours / theirs, rounds };
  };
  const found = (report: PeerReport, work: string, sequences: number) =>
    report.rows.find((row) => row.work === work && row.sequences === sequences)!;
  const rates = (what: string, work: string, sequences: number): Comparison => ({
    ...row(what, "tokens/s", (report) => found(report, work, sequences).tokens_per_second),
    share_of_limit: median(compy.map((report) => found(report, work, sequences).share_of_limit!)),
  });
  const told = (what: string, unit: string, figure: (report: PeerReport) => number | undefined) =>
    peer.every((report) => figure(report) !== undefined)
      ? [row(what, unit, (report) => figure(report)!)]
      : [];
  return [
    rates(`prefill of ${settings.prefill}`, "prefill", 1),
    ...settings.sequences.map((n) => rates(`decode, ${n} at once`, "decode", n)),
    ...told("resident memory", "MB", ({ rss_mb }) => rss_mb),
    ...told("loading", "ms", ({ load_ms }) => load_ms),
  ];
}

function describe(
  rows: readonly Comparison[],
  settings: Settings,
  loads: readonly number[],
  { compy, peer: peers }: Record<"compy" | "peer", string | undefined>,
): string {
  const { model, threads, rounds, prefill, peer } = settings;
  const range = (values: readonly number[], digits = 1) =>
    `${Math.min(...values).toFixed(digits)}-${Math.max(...values).toFixed(digits)}`;
  const cells = rows.map(({ what, unit, compy, peer, ratio, rounds, share_of_limit }) => [
    `${what}, ${unit}`,
    compy.toFixed(1),
    range(rounds.compy),
    peer.toFixed(1),
    range(rounds.peer),
    ratio.toFixed(2),
    range(rounds.ratio, 2),
    share_of_limit === undefined ? "" : percent(share_of_limit),
  ]);
  const span = "lowest-highest";
  const head = ["", "compy", span, "peer", span, "ratio", span, "of the limit"];
  return [
    `compy on ${compy ?? "?"} beside ${peer.name} on ${peers ?? "instruction sets that it does not tell"}`,
    `${basename(model)}: ${threads} threads, prompts of ${prefill} tokens, medians of ${rounds} rounds`,
    `load averages: ${loads.map((load) => load.toFixed(1)).join(", ")} (before, and after each round)`,
    "",
    asTable([head, ...cells]),
  ].join("\n");
}

await command("bench:peers", HELP, async () => {
  const settings = readOptions();
  if (!await exists(settings.model)) throw new Error(`Cannot find a model at ${settings.model}`);
  await settings.peer.prepare();
  const loads = [warnIfBusy()];
  const compy: PeerReport[] = [], peer: PeerReport[] = [];
  for (let round = 1; round <= settings.rounds; round++) {
    const ours = async () => {
      say(`round ${round} of ${settings.rounds}: compy …`);
      compy.push(await runCompy(settings));
    };
    const theirs = async () => {
      say(`round ${round} of ${settings.rounds}: ${settings.peer.name} …`);
      peer.push(await runPeer(settings));
    };
    // The order of the two programs alternates from round to round.
    for (const turn of round % 2 === 1 ? [ours, theirs] : [theirs, ours]) await turn();
    loads.push(loadAverage());
  }
  const rows = compare(compy, peer, settings);
  const isa = { compy: compy[0].isa, peer: peer[0].isa };
  const { prefill: pp, decode: tg, threads, model, backend, arithmetic } = settings;
  const json = {
    date: new Date().toISOString().slice(0, 10),
    machine: { cpu: await cpuName(), cores: navigator.hardwareConcurrency },
    model: basename(model),
    peer: settings.peer.name,
    threads,
    pp,
    tg,
    load_averages: loads,
    backend,
    arithmetic,
    isa,
    limits: compy[0].limits,
    rows,
  };
  print(settings.json ? `${JSON.stringify(json)}\n` : describe(rows, settings, loads, isa));
});

/**
 * Returns the CPU's name; undefined outside Linux. A child program reads the file, because Deno allows that only with
 * all permissions.
 */
async function cpuName(): Promise<string | undefined> {
  try {
    return (await run("cat", ["/proc/cpuinfo"])).match(/^model name\s*: (.*)$/m)?.[1];
  } catch {
    return undefined;
  }
}
