/**
 * compy beside its peers on this machine (`deno task bench:peers`): one process each, by turns, so that a slow moment of
 * the machine hits both. The peer is llama.cpp as npm's node-llama-cpp ships it, prebuilt.
 */
import { basename, fromFileUrl, resolve } from "@std/path";
import { median } from "./samples.ts";
import { type Arithmetic, ARITHMETICS } from "../engine/types.ts";
import { exists, installPeer, PEER, PEER_VERSION, type PeerBackend, peerGpu, warnIfBusy } from "./peer.ts";
import { command, loadAverage, Options, print, ROOT, run, say, UsageError } from "./shell.ts";
import { asTable, percent } from "./table.ts";

const HELP = `Compare with ${PEER} ${PEER_VERSION} on this machine, side by side.

Usage: deno task bench:peers --model FILE [options]

  --model FILE   the GGUF model that both run
  --pp N         tokens of each prompt (default 512)
  --tg N         tokens decoded after it (default 32)
  --npl LIST     how many sequences to decode side by side (default 1,16)
  --threads N    threads that compute (default: one a core)
  --backend NAME cpu, or webgpu: compy on WebGPU beside llama.cpp on Vulkan, or Metal on a Mac (default cpu)
  --arithmetic A of compy's matrix products on the GPU: f32, f16-activations or f16 (default f32)
  --rounds N     how often each has its turn (default 3)
  --json         one JSON object: {"model", "peer", "threads", "pp", "tg", "load_averages",
                 "backend", "arithmetic", "gpus": {"compy", "peer", "copy_gbps"},
                 "rows": [{"what", "unit", "compy", "peer", "ratio", "share_of_copy",
                           "rounds": {"compy": […], "peer": […], "ratio": […]}}, …]}
  --help         this text

Needs Node 20 or newer and npm: the peer is installed into .cache/ the first time (about 60 MB). It runs on the CPU, or
all of it on the GPU, as compy does. On a GPU a row of decoding also has compy's share of what reading weights and KV
cache at the speed of a copy would allow. Figures are medians over the rounds with the lowest and highest beside them; a ratio is compy's figure over
the peer's, so above 1 is better for tokens/s and below 1 for memory and loading; its range is that of single rounds. Let nothing else compute meanwhile: llama.cpp's threads wait for each other
spinning, so a busy machine slows it far more than its share.
Exit code: 0 done, 1 failed, 2 wrong usage.

Example:
  deno task bench:peers --model qwen3-0.6b-q8_0.gguf --pp 128 --npl 1,16
`;

interface Settings {
  readonly model: string;
  readonly prefill: number;
  readonly decode: number;
  readonly sequences: readonly number[];
  readonly threads: number;
  readonly backend: PeerBackend;
  readonly arithmetic: Arithmetic;
  readonly rounds: number;
  readonly json: boolean;
}

/** What both sides print. */
interface Report {
  readonly rows: {
    readonly work: string;
    readonly sequences: number;
    readonly tokens_per_second: number;
    /** Only compy's. */
    readonly share_of_limit?: number;
  }[];
  /** What computes: of the peer, its GPU's name. */
  readonly isa?: string;
  readonly limits?: { readonly read_gbps: number };
  readonly rss_mb: number;
  readonly load_ms: number;
}

interface Comparison {
  readonly what: string;
  readonly unit: string;
  readonly compy: number;
  readonly peer: number;
  readonly ratio: number;
  /** Of decoding on a GPU. */
  readonly share_of_copy?: number;
  readonly rounds: Record<"compy" | "peer" | "ratio", readonly number[]>;
}

function readOptions(): Settings {
  const options = new Options(Deno.args, [
    "model",
    "npl",
    "pp",
    "tg",
    "threads",
    "rounds",
    "backend",
    "arithmetic",
  ]);
  const path = options.text("model");
  if (!path) throw new UsageError("--model is wanted: the GGUF file that both run");
  return {
    // A task starts in the repository's folder; the path is the caller's.
    model: resolve(Deno.env.get("INIT_CWD") ?? ".", path),
    prefill: options.count("pp", 1_000_000, 512),
    decode: options.count("tg", 1_000_000, 32),
    sequences: [...new Set(options.counts("npl", 256, "1,16"))],
    threads: options.count("threads", 1024, navigator.hardwareConcurrency),
    backend: options.choice("backend", ["cpu", "webgpu"], "cpu"),
    arithmetic: options.choice("arithmetic", ARITHMETICS, "f32"),
    rounds: options.count("rounds", 1000, 3),
    json: options.json,
  };
}

async function runCompy(settings: Settings): Promise<Report> {
  const { model, prefill, decode, sequences, threads, backend, arithmetic } = settings;
  const flags = { model, pp: prefill, tg: decode, npl: sequences.join(","), threads, backend, arithmetic };
  const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)]);
  return JSON.parse(
    await run("deno", ["run", "-q", "-P=compute", "main.ts", "bench", ...args, "--json"], ROOT),
  );
}

async function runPeer(
  { model, prefill, decode, sequences, threads, backend }: Settings,
  folder: string,
): Promise<Report> {
  const script = fromFileUrl(new URL("peer_node_llama_cpp.mjs", import.meta.url));
  const gpu = backend === "webgpu" ? peerGpu() : false;
  const settings = JSON.stringify({ model, prefill, decode, sequences, threads, gpu });
  const lines = (await run("node", [script, settings], folder)).trim().split("\n");
  return JSON.parse(lines.at(-1)!); // llama.cpp may print before it
}

function compare(compy: readonly Report[], peer: readonly Report[], settings: Settings): Comparison[] {
  const row = (what: string, unit: string, figure: (report: Report) => number): Comparison => {
    const rounds = {
      compy: compy.map(figure),
      peer: peer.map(figure),
      ratio: compy.map((report, i) => figure(report) / figure(peer[i])),
    };
    const [ours, theirs] = [median(rounds.compy), median(rounds.peer)];
    return { what, unit, compy: ours, peer: theirs, ratio: ours / theirs, rounds };
  };
  const share = (n: number) => {
    const of = ({ rows }: Report) =>
      rows.find(({ work, sequences }) => work === "decode" && sequences === n)!.share_of_limit!;
    return settings.backend === "webgpu" ? median(compy.map(of)) : undefined;
  };
  const rate = (work: string, sequences?: number) => (report: Report) =>
    report.rows.find((row) => row.work === work && (sequences ?? row.sequences) === row.sequences)!
      .tokens_per_second;
  return [
    row(`prefill of ${settings.prefill}`, "tokens/s", rate("prefill")),
    ...settings.sequences.map((n) => (
      { ...row(`decode, ${n} at once`, "tokens/s", rate("decode", n)), share_of_copy: share(n) }
    )),
    row("resident memory", "MB", ({ rss_mb }) => rss_mb),
    row("loading", "ms", ({ load_ms }) => load_ms),
  ];
}

function describe(rows: readonly Comparison[], settings: Settings, loads: readonly number[]): string {
  const { model, threads, rounds, prefill } = settings;
  const range = (values: readonly number[], digits = 1) =>
    `${Math.min(...values).toFixed(digits)}-${Math.max(...values).toFixed(digits)}`;
  const cells = rows.map(({ what, unit, compy, peer, ratio, rounds, share_of_copy }) => [
    `${what}, ${unit}`,
    compy.toFixed(1),
    range(rounds.compy),
    peer.toFixed(1),
    range(rounds.peer),
    ratio.toFixed(2),
    range(rounds.ratio, 2),
    share_of_copy === undefined ? "" : percent(share_of_copy),
  ]);
  const span = "lowest-highest";
  const last = settings.backend === "webgpu" ? "of a copy's speed" : "";
  const head = ["", "compy", span, PEER, span, "ratio", span, last];
  return [
    `${basename(model)}: ${threads} threads, prompts of ${prefill} tokens, medians of ${rounds} rounds`,
    `load averages: ${loads.map((load) => load.toFixed(1)).join(", ")} (before, and after each round)`,
    "",
    asTable([head, ...cells]),
  ].join("\n");
}

await command("bench:peers", HELP, async () => {
  const settings = readOptions();
  if (!await exists(settings.model)) throw new Error(`Cannot find a model at ${settings.model}`);
  const folder = await installPeer(settings.backend);
  const loads = [warnIfBusy()];
  const compy: Report[] = [], peer: Report[] = [];
  for (let round = 1; round <= settings.rounds; round++) {
    const ours = async () => {
      say(`round ${round} of ${settings.rounds}: compy …`);
      compy.push(await runCompy(settings));
    };
    const theirs = async () => {
      say(`round ${round} of ${settings.rounds}: ${PEER} …`);
      peer.push(await runPeer(settings, folder));
    };
    // Who comes first changes from round to round.
    for (const turn of round % 2 === 1 ? [ours, theirs] : [theirs, ours]) await turn();
    loads.push(loadAverage());
  }
  const rows = compare(compy, peer, settings);
  const { prefill: pp, decode: tg, threads, model, backend, arithmetic } = settings;
  const json = {
    model: basename(model),
    peer: `${PEER} ${PEER_VERSION}`,
    threads,
    pp,
    tg,
    load_averages: loads,
    backend,
    arithmetic,
    gpus: { compy: compy[0].isa, peer: peer[0].isa, copy_gbps: compy[0].limits?.read_gbps },
    rows,
  };
  print(settings.json ? `${JSON.stringify(json)}\n` : describe(rows, settings, loads));
});
