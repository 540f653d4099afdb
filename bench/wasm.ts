/**
 * The kernels as WebAssembly beside the native ones, in turns in one run: `deno task bench:wasm FILE.gguf [ROWS STEPS]`. Rates are by CPU
 * time with one thread, which other programs on the machine hardly change, and by the clock with more.
 */
import process from "node:process";
import { buildPlan, readRopeFactors } from "../engine/architectures/registry.ts";
import { greedyRequest, KV_BLOCK_TOKENS, type StepInput } from "../engine/backend/backend.ts";
import type { KernelBackend } from "../engine/backend/choose.ts";
import { CpuBackend } from "../engine/backend/cpu/cpu.ts";
import { WasmBackend } from "../engine/backend/wasm/wasm.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import { type Plan, wholeTables } from "../engine/plan/plan.ts";

interface Runner {
  readonly name: string;
  readonly backend: KernelBackend;
  /** Milliseconds of each step: CPU time and by the clock. */
  readonly prefill: [cpu: number, clock: number][];
  readonly decode: [cpu: number, clock: number][];
}

const [model, rowsText = "64", stepsText = "24"] = Deno.args;
const [rows, steps] = [Number(rowsText), Number(stepsText)];
const file = await openGguf(model);
const plan = buildPlan(file, await readRopeFactors(file));
const blocks = Math.ceil((rows + steps) / KV_BLOCK_TOKENS);

const runners: Runner[] = [];
for (
  const [name, backend] of [
    ["native avx2, 1 thread", new CpuBackend({ threads: 1, isa: "avx2" })],
    ["WebAssembly, 1 thread", await WasmBackend.open({ threads: 1 })],
    ["WebAssembly, 2 threads", await WasmBackend.open({ threads: 2 })],
  ] as const
) {
  await backend.loadWeights(file, plan);
  const kvBlocks = blocks * plan.kv.windows.length;
  await backend.compile(plan, { kvBlocks, stateSlots: 1, maxRows: rows, maxLogitRows: 1 });
  runners.push({ name, backend, prefill: [], decode: [] });
}

// The first rounds run code that V8 has not optimized yet.
for (let round = 0; round < 8; round++) {
  for (const { backend, prefill } of runners) prefill.push(await timed(backend, stepOf(plan, rows, 0)));
}
for (let step = 0; step < steps; step++) {
  for (const { backend, decode } of runners) decode.push(await timed(backend, stepOf(plan, 1, rows + step)));
}
for (const { name, prefill, decode } of runners) {
  const rates = (by: 0 | 1) =>
    `prefill ${(1000 * rows / best(prefill, by)).toFixed(1)}, decode ${(1000 / best(decode, by)).toFixed(1)}`;
  say(`${name.padEnd(22)}  tokens/s: ${rates(1)} by the clock; ${rates(0)} by CPU time`);
}
const [native, one, two] = runners;
for (const what of ["prefill", "decode"] as const) {
  say(
    `${what}: one thread ${(best(native[what], 0) / best(one[what], 0)).toFixed(2)} of native's, ` +
      `two threads ${(best(one[what], 1) / best(two[what], 1)).toFixed(2)} times one`,
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

function best(times: Runner["prefill"], by: 0 | 1): number {
  return Math.min(...times.map((time) => time[by]));
}

function say(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text + "\n"));
}
