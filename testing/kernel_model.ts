import { readPlan } from "../engine/architectures/registry.ts";
import {
  AXES,
  type Backend,
  type Candidates,
  type CompileOptions,
  greedyRequest,
  type KvType,
  type LogitsRequest,
  type StepSequence,
  type StepState,
  type WindowTable,
} from "../engine/backend/backend.ts";
import { CpuBackend, type CpuOptions } from "../engine/backend/cpu/cpu.ts";
import type { KernelBackend } from "../engine/backend/choose.ts";
import { WasmBackend } from "../engine/backend/wasm/wasm.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import type { GgufFile } from "../engine/gguf/types.ts";
import { type Plan, wholeTables, withKvType } from "../engine/plan/plan.ts";
import { KernelLibrary } from "../ffi/library.ts";

/** Tokens of one sequence in a step, and the requested results. */
export interface Run {
  readonly tokens: readonly number[];
  /** Number of earlier tokens of the sequence. */
  readonly cached?: number;
  /** Each entry is a block of every layer group (see `wholeTables`), or with `windowTables` only of the first. */
  readonly blockTable: Int32Array;
  readonly windowTables?: readonly WindowTable[];
  /** The sequence's slot of recurrent state, the same in every step. */
  readonly slot?: number;
  /** Slots that get a copy of the state after this many of the tokens. */
  readonly saves?: StepState["saves"];
  /** Slot from which the state is read; by default its own. */
  readonly source?: number;
  /** Requested results after the last tokens; the last entry belongs to the last token. */
  readonly wanted?: readonly Wanted[];
}

export interface Wanted {
  readonly candidates?: number;
  /** Tokens whose logits are returned. */
  readonly probe?: readonly number[];
}

/** Number of state slots, more than the sequences in any test's step. Slots cost nothing without a recurrent state. */
const STATE_SLOTS = 32;

/** CPU settings of a model. */
export interface CpuModelOptions extends CpuOptions {
  readonly kvType?: KvType;
  /** Kind of the kernels; by default COMPY_TEST_BACKEND. */
  readonly kind?: "cpu" | "wasm";
}

/** The tests' kernels: native, or WebAssembly if COMPY_TEST_BACKEND is `wasm`. */
export const TEST_BACKEND = Deno.env.get("COMPY_TEST_BACKEND") === "wasm" ? "wasm" : "cpu";

/** Opens the kernels that the tests run with, or the kind in `options`. WebAssembly has one instruction set. */
export async function kernelBackend(options: CpuModelOptions = {}): Promise<KernelBackend> {
  return (options.kind ?? TEST_BACKEND) === "wasm"
    ? await WasmBackend.open(options)
    : new CpuBackend(options);
}

/** A model file on the kernels, without an engine around it. */
export class KernelModel implements Disposable {
  private constructor(readonly backend: Backend, private plan: Plan) {}

  /** Loads a file's bytes on the CPU or the given backend. The bytes may be discarded after the call. */
  static load(
    bytes: Uint8Array,
    compile: CompileOptions,
    options: CpuModelOptions | Backend = {},
  ): Promise<KernelModel> {
    return this.loadAs(readPlan, bytes, compile, options);
  }

  /** Loads a model as `load` does, with a plan that the registry lacks. */
  static async loadAs(
    build: (file: GgufFile) => Plan | Promise<Plan>,
    bytes: Uint8Array,
    compile: CompileOptions,
    options: CpuModelOptions | Backend = {},
  ): Promise<KernelModel> {
    const path = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
    try {
      await Deno.writeFile(path, bytes);
      const file = await openGguf(path);
      return await KernelModel.open(file, await build(file), compile, options);
    } finally {
      await Deno.remove(path);
    }
  }

  /** Loads a model as `load` does, from a file on the disk, which may be removed after the call. */
  static async open(
    file: GgufFile,
    built: Plan,
    compile: CompileOptions,
    options: CpuModelOptions | Backend = {},
  ): Promise<KernelModel> {
    const onBackend = "step" in options;
    const plan = onBackend ? built : withKvType(built, options.kvType ?? "f16");
    const backend = onBackend ? options : await kernelBackend(options);
    await backend.loadWeights(file, plan);
    const model = new KernelModel(backend, plan);
    await model.compile(plan, compile);
    return model;
  }

  /** Compiles another plan for the same tensors. */
  async compile(plan: Plan, compile: CompileOptions): Promise<void> {
    const kvBlocks = compile.kvBlocks * plan.kv.windows.length;
    await this.backend.compile(plan, { stateSlots: STATE_SLOTS, ...compile, kvBlocks });
    this.plan = plan;
  }

  /** Runs one step. Returns the answers of each run, in order. */
  async step(runs: readonly Run[]): Promise<Candidates[][]> {
    const sequences: StepSequence[] = [];
    const logits: LogitsRequest[] = [];
    let start = 0;
    for (const run of runs) {
      const { tokens, cached = 0, blockTable, wanted = [] } = run;
      const { windowTables } = run;
      const tables = windowTables ? { blockTable, windowTables } : wholeTables(this.plan, blockTable);
      sequences.push({ start, length: tokens.length, cached, ...tables, state: this.#state(run) });
      start += tokens.length;
      wanted.forEach((want, i) => logits.push(request(start - wanted.length + i, want)));
    }
    const tokens = Int32Array.from(runs.flatMap((run) => run.tokens));
    const { rows } = await this.backend.step({ tokens, sequences, logits });
    let at = 0;
    return runs.map(({ wanted = [] }) => rows.slice(at, at += wanted.length));
  }

  /** Drafts one token per sequence from a row of the previous step. Returns the candidates of each token. */
  async draft(
    runs: readonly (Pick<Run, "blockTable" | "wanted"> & {
      token: number;
      cached: number;
      from: number;
      /** The token's position; by default `cached`. */
      position?: number;
    })[],
  ): Promise<Candidates[]> {
    const { rows } = await this.backend.step({
      tokens: Int32Array.from(runs, ({ token }) => token),
      sequences: runs.map(({ cached, blockTable, position = cached }, start) => {
        const places = new Uint32Array(AXES).fill(position);
        return { start, length: 1, cached, places, ...wholeTables(this.plan, blockTable) };
      }),
      logits: runs.map(({ wanted = [{}] }, row) => request(row, wanted[0])),
      drafts: Int32Array.from(runs, ({ from }) => from),
    });
    return rows;
  }

  /** Drafts in one pass, in which the rows of a run attend to each other. Returns the candidates of each run. */
  async draftBlocks(
    runs: readonly Required<Pick<Run, "tokens" | "cached" | "blockTable" | "wanted">>[],
  ): Promise<Candidates[][]> {
    const sequences: StepSequence[] = [];
    const logits: LogitsRequest[] = [];
    let start = 0;
    for (const { tokens: { length }, cached, blockTable, wanted } of runs) {
      const spans = [{ first: cached, end: cached + length }];
      sequences.push({ start, length, cached, ...wholeTables(this.plan, blockTable), spans });
      start += length;
      wanted.forEach((want, i) => logits.push(request(start - wanted.length + i, want)));
    }
    const tokens = Int32Array.from(runs.flatMap((run) => run.tokens));
    const drafts = Int32Array.from(tokens.keys());
    const { rows } = await this.backend.step({ tokens, sequences, logits, drafts });
    let at = 0;
    return runs.map(({ wanted }) => rows.slice(at, at += wanted.length));
  }

  #state({ cached = 0, slot = 0, source = slot, saves = [] }: Run): StepState | undefined {
    return this.plan.states.length > 0
      ? { read: cached === 0 ? undefined : source, write: slot, saves }
      : undefined;
  }

  [Symbol.dispose](): void {
    this.backend.close();
  }
}

function request(row: number, { candidates = 1, probe = [] }: Wanted): LogitsRequest {
  return { ...greedyRequest(row), candidates, probe: Int32Array.from(probe) };
}

/** The instruction sets that this CPU can run, best first. */
export function instructionSets(): string[] {
  if (TEST_BACKEND === "wasm") return ["wasm-simd128"];
  return new TextDecoder().decode(KernelLibrary.open().call("compy_instruction_sets", 0n)).split(",");
}

/** Returns `count` KV blocks from block `first` on, in shuffled order. */
export function shuffledBlocks(first: number, count: number): Int32Array {
  return Int32Array.from({ length: count }, (_, i) => first + (i * 5 + 3) % count);
}
