/** Runs llama-bench or llama-batched-bench, of llama.cpp or a fork, as a peer, and parses its output. */
import { basename } from "@std/path";
import { type Ran, ROOT, runBoth, UsageError } from "../../bench/shell.ts";
import type { PeerReport, PeerRow, Work } from "./report.ts";

const REPETITIONS = 2;

/** One setting's row in llama-batched-bench's table; rates are tokens per second. */
interface BatchedRow {
  readonly sequences: number;
  readonly prefill: number;
  readonly decode: number;
}

/**
 * Runs the program; its file name says which of the two it is. llama-bench decodes one sequence only. `more` is
 * appended to its arguments, for example -rtr 1. Throws if the output lacks a requested figure.
 */
export async function runLlamaBench(
  program: string,
  more: readonly string[],
  work: Work,
): Promise<PeerReport> {
  if (basename(program).includes("batched")) {
    const ran = await runBoth(program, [...batchedArguments(work), ...more], ROOT);
    // The table is on standard output or, in newer forks, on standard error.
    return {
      rows: fromBatched(parseBatched(`${ran.stdout}\n${ran.stderr}`), work),
      isa: instructionSets(ran),
    };
  }
  if (work.sequences.some((n) => n !== 1)) {
    throw new UsageError(
      `${basename(program)} decodes one sequence: ask for --npl 1, or name the llama-batched-bench beside it`,
    );
  }
  const help = await runBoth(program, ["--help"], ROOT, { anyCode: true });
  const ran = await runBoth(program, [...benchArguments(work, help.stdout + help.stderr), ...more], ROOT);
  return { rows: fromBench(JSON.parse(ran.stdout), work), isa: instructionSets(ran) };
}

function batchedArguments({ model, prefill, decode, sequences, threads }: Work): string[] {
  const context = Math.max(...sequences) * (prefill + decode);
  return [
    ...["-m", model, "-c", `${context}`, "-t", `${threads}`],
    ...["-npp", `${prefill}`, "-ntg", `${decode}`, "-npl", [1, ...sequences].join(",")],
  ];
}

/** Returns arguments that make the program decode after the prompt, in the way that this version supports. */
function benchArguments({ model, prefill, decode, threads }: Work, help: string): string[] {
  const all = ["-m", model, "-t", `${threads}`, "-r", `${REPETITIONS}`, "-o", "json"];
  const [pp, tg] = [`${prefill}`, `${decode}`];
  if (/^\s*-gp\b/m.test(help)) return [...all, "-p", pp, "-n", "0", "-gp", `${pp},${tg}`];
  if (/\s-d\b/.test(help)) return [...all, "-p", pp, "-n", tg, "-d", `0,${pp}`];
  throw new Error("This llama-bench knows neither -d nor -gp: it cannot decode after a prompt");
}

/** Returns the rows of llama-batched-bench's Markdown table; columns are found by name. */
export function parseBatched(text: string): BatchedRow[] {
  const lines = text.split("\n").filter((line) => line.startsWith("|")).map((line) =>
    line.split("|").slice(1, -1).map((cell) => cell.trim())
  );
  const head = lines.findIndex((cells) => cells.includes("S_PP t/s"));
  if (head < 0) throw new Error(`llama-batched-bench printed no table:\n${text.slice(-500)}`);
  const at = (name: string) => lines[head].indexOf(name);
  return lines.slice(head + 1).filter(([first]) => /^\d+$/.test(first)).map((cells) => ({
    sequences: Number(cells[at("B")]),
    prefill: Number(cells[at("S_PP t/s")]),
    decode: Number(cells[at("S_TG t/s")]),
  }));
}

/**
 * Returns the report of the table's last row for each setting. A repeated first row (one sequence) was only a warm-up.
 */
function fromBatched(rows: readonly BatchedRow[], { sequences }: Work): PeerRow[] {
  const of = (n: number) => {
    const row = rows.findLast((row) => row.sequences === n);
    if (row) return row;
    throw new Error(`llama-batched-bench has no row for ${n} sequences`);
  };
  return [
    { work: "prefill", sequences: 1, tokens_per_second: of(1).prefill },
    ...sequences.map((n): PeerRow => ({ work: "decode", sequences: n, tokens_per_second: of(n).decode })),
  ];
}

/** One test of llama-bench's JSON. */
interface BenchTest {
  readonly n_prompt: number;
  readonly n_gen: number;
  /** Context before the test; undefined in older versions. */
  readonly n_depth?: number;
  readonly avg_ts: number;
}

export function fromBench(tests: readonly BenchTest[], { prefill, decode }: Work): PeerRow[] {
  const rate = (what: string, found: (test: BenchTest) => boolean) => {
    const test = tests.find(found);
    if (test) return test.avg_ts;
    throw new Error(`llama-bench has no test of ${what}`);
  };
  const reads = (test: BenchTest) => test.n_prompt === prefill && test.n_gen === 0 && !test.n_depth;
  const answers = ({ n_prompt, n_gen, n_depth }: BenchTest) =>
    n_gen === decode && (n_depth === prefill || n_prompt === prefill);
  return [
    { work: "prefill", sequences: 1, tokens_per_second: rate(`a prompt of ${prefill}`, reads) },
    { work: "decode", sequences: 1, tokens_per_second: rate(`${decode} after ${prefill}`, answers) },
  ];
}

/**
 * Returns the CPU instruction sets that the program reports; undefined if it reports none. Newer versions print, with
 * `-lv 4`, only the weights' buffers, such as "AMX".
 */
export function instructionSets({ stdout, stderr }: Pick<Ran, "stdout" | "stderr">): string | undefined {
  const text = `${stderr}\n${stdout}`;
  const backend = text.match(/libggml-cpu-(\w+)/)?.[1];
  const info = text.match(/system_info:.*/)?.[0] ?? "";
  const flags = [...info.matchAll(/(\w+) = 1\b/g)].map(([, name]) => name);
  const memories = flags.length > 0
    ? []
    : [...text.matchAll(/(\w+) model buffer size/g)].map(([, name]) => name);
  return [backend, ...flags, ...new Set(memories)].filter(Boolean).join(" ") || undefined;
}
