/**
 * Compares the WebAssembly kernels with the native ones, alternating in one run: `deno task bench:wasm FILE.gguf [ROWS
 * STEPS]`. Prints the median and range of the ratios between steps. Ratios for one thread use CPU time, which other
 * programs hardly change. Ratios for two threads use wall time, and are compared with the native kernels' gain from a
 * second thread.
 */
import process from "node:process";
import { readPlan } from "../engine/architectures/registry.ts";
import { greedyRequest, KV_BLOCK_TOKENS, type StepInput } from "../engine/backend/backend.ts";
import type { KernelBackend } from "../engine/backend/choose.ts";
import { CpuBackend } from "../engine/backend/cpu/cpu.ts";
import { WasmBackend } from "../engine/backend/wasm/wasm.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import { type Plan, wholeTables } from "../engine/plan/plan.ts";
import { median } from "../bench/samples.ts";

/** Warm-up rounds, in which V8 has not optimized all code yet. */
const WARMING = 2;
const ROUNDS = 7;

interface Runner {
  readonly name: string;
  readonly backend: KernelBackend;
  /** Milliseconds of each step: CPU time and wall time. */
  readonly prefill: [cpu: number, clock: number][];
  readonly decode: [cpu: number, clock: number][];
}

const [model, rowsText = "64", stepsText = "24"] = Deno.args;
const [rows, steps] = [Number(rowsText), Number(stepsText)];
const file = await openGguf(model);
const plan = await readPlan(file);
const blocks = Math.ceil((rows + WARMING + steps) / KV_BLOCK_TOKENS);

const runners: Runner[] = [];
for (
  const [name, backend] of [
    ["native avx2, 1 thread", new CpuBackend({ threads: 1, isa: "avx2" })],
    ["native avx2, 2 threads", new CpuBackend({ threads: 2, isa: "avx2" })],
    ["WebAssembly, 1 thread", await WasmBackend.open({ threads: 1 })],
    ["WebAssembly, 2 threads", await WasmBackend.open({ threads: 2 })],
  ] as const
) {
  await backend.loadWeights(file, plan);
  const kvBlocks = blocks * plan.kv.windows.length;
  await backend.compile(plan, { kvBlocks, stateSlots: 1, maxRows: rows, maxLogitRows: 1 });
  runners.push({ name, backend, prefill: [], decode: [] });
}

for (let round = 0; round < WARMING + ROUNDS; round++) {
  for (const { backend, prefill } of runners) {
    const times = await timed(backend, stepOf(plan, rows, 0));
    if (round >= WARMING) prefill.push(times);
  }
}
for (let step = 0; step < WARMING + steps; step++) {
  for (const { backend, decode } of runners) {
    const times = await timed(backend, stepOf(plan, 1, rows + step));
    if (step >= WARMING) decode.push(times);
  }
}
for (const { name, prefill, decode } of runners) {
  const rates = (by: 0 | 1) => `prefill ${rate(rows, prefill, by)}, decode ${rate(1, decode, by)}`;
  say(`${name.padEnd(22)}  tokens/s: ${rates(1)} by the clock; ${rates(0)} by CPU time`);
}
const [native, nativeTwo, one, two] = runners;
for (const what of ["prefill", "decode"] as const) {
  say(
    `${what}: one thread ${ratio(native[what], one[what], 0)} of native's, two threads ` +
      `${ratio(one[what], two[what], 1)} times one (native's ${ratio(native[what], nativeTwo[what], 1)})`,
  );
}
Deno.exit(0);

function stepOf(plan: Plan, length: number, cached: number): StepInput {
  const tables = wholeTables(plan, Int32Array.from({ length: blocks }, (_, i) => i));
  const state = plan.states.length === 0
    ? undefined
    : { read: cached === 0 ? undefined : 0, write: 0, saves: [] };
  return {
    tokens: Int32Array.from({ length }, (_, i) => 100 + cached + i),
    sequences: [{ start: 0, length, cached, ...tables, state }],
    logits: [greedyRequest(length - 1)],
  };
}

async function timed(backend: KernelBackend, input: StepInput): Promise<[cpu: number, clock: number]> {
  const [cpu, clock] = [cpuTime(), performance.now()];
  await backend.step(input);
  return [cpuTime() - cpu, performance.now() - clock];
}

function cpuTime(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e3;
}

function rate(tokens: number, times: Runner["prefill"], by: 0 | 1): string {
  return (1000 * tokens / median(times.map((time) => time[by]))).toFixed(1);
}

/** Returns the ratios of the first runner's times to the second's. */
function ratio(first: Runner["prefill"], second: Runner["prefill"], by: 0 | 1): string {
  const ratios = first.map((time, round) => time[by] / second[round][by]);
  const [middle, low, high] = [median(ratios), Math.min(...ratios), Math.max(...ratios)];
  return `${middle.toFixed(2)} (${low.toFixed(2)}-${high.toFixed(2)})`;
}

function say(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text + "\n"));
}
