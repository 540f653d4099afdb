import { FORMATS } from "../../gguf/formats.ts";
import { type ByteSource, memorySource, readBytes, withSources } from "../../gguf/byte_source.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { MachineLimits } from "../../plan/cost.ts";
import { encodePlan } from "../../plan/encode.ts";
import { kvGroupBytes, type Plan, type PlanTensor, stateBytes } from "../../plan/plan.ts";
import { WordWriter } from "../../plan/words.ts";
import type {
  Abilities,
  Backend,
  BackendInfo,
  CacheParts,
  CompileOptions,
  StepInput,
  StepOutput,
} from "../backend.ts";
import { StepStopped } from "../backend.ts";
import { dequantizer, factorWords, type Piece, pieceWords } from "../cpu/weight_words.ts";
import { answerBytes, answerShape, decodeAnswers, encodeStep, partWords } from "../cpu/step_words.ts";
import { Machine } from "./machine.ts";
import { moduleBytes } from "./module.ts";

export interface WasmOptions {
  /** Number of threads; by default one per core. Always one on a web page without cross-origin isolation. */
  readonly threads?: number;
}

/** Bytes of a tensor to read and pack at a time. */
const PIECE = 4 * 2 ** 20;
/** Unit of the rows in a piece, so that a piece consists of whole panels. */
const PANEL_ROWS = 8;

/** Runs plans on the Rust kernels as WebAssembly, in workers. */
export class WasmBackend implements Backend {
  readonly info: BackendInfo;
  readonly abilities: Abilities = { copies: this, pools: true };
  readonly wholeRows: number;
  readonly #machine: Machine;
  readonly #handle: bigint;
  /** Address of the byte whose value 1 stops the running step. */
  readonly #stopFlag: number;
  readonly #packed = new Map<PlanTensor, number>();
  readonly #words = new WordWriter(1 << 16);
  #answers = { pooled: 0, tallies: 0 };
  #vocabSize = 0;
  /** Bytes of a KV block of each group, and of a slot of recurrent state. */
  #sizes = { groups: [0], state: 0 };
  /** Sequential number of the next step with masks. */
  #step = 0;
  /** Whether the current step was asked to stop. */
  #stopping = false;
  /** Ends the current wait for masks. */
  #stopped: (() => void) | undefined;

  private constructor(
    machine: Machine,
    handle: bigint,
    { isa, wholeRows }: { isa: string; wholeRows: number },
    stopFlag: number,
  ) {
    this.#machine = machine;
    this.#handle = handle;
    this.#stopFlag = stopFlag;
    this.info = { name: "wasm", isa, threads: machine.threads };
    this.wholeRows = wholeRows;
  }

  /** Opens the WebAssembly kernels. Throws WasmError if workers cannot start. */
  static async open({ threads = navigator.hardwareConcurrency }: WasmOptions = {}): Promise<WasmBackend> {
    const machine = await Machine.start(threads);
    try {
      const made = await machine.call(
        "compy_model_new",
        0n,
        new WordWriter().u32(machine.threads).u32(0).bytes(),
      );
      const handle = view(made).getBigUint64(0, true);
      const isa = new TextDecoder().decode(await machine.call("compy_model_isa", handle));
      const flag = view(await machine.call("compy_stop_flag", handle)).getUint32(0, true);
      const wholeRows = view(await machine.call("compy_model_whole_rows", handle)).getUint32(0, true);
      return new WasmBackend(machine, handle, { isa, wholeRows }, flag);
    } catch (error) {
      machine.close();
      throw error;
    }
  }

  /** Returns the SHA-256 of the kernels, because another build may round differently. */
  async kernelsDigest(): Promise<string> {
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await moduleBytes()));
    return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  /** Returns the packed bytes of each tensor; 0 for a vector. */
  async packedBytes(tensors: readonly PlanTensor[]): Promise<number[]> {
    const matrices = tensors.filter(({ kind }) => kind !== "vector");
    const sizes = await this.#machine.calls(matrices.map((t) => ({
      name: "compy_packed_bytes",
      handle: this.#handle,
      input: new WordWriter(12).u32(FORMATS[t.info.type].id, t.columns, t.rows).bytes(),
    })));
    for (const [i, t] of matrices.entries()) {
      this.#packed.set(t, Number(view(sizes[i]).getBigUint64(0, true)));
    }
    return tensors.map((t) => this.tensorBytes(t));
  }

  /** Returns the packed bytes of one tensor. The tensor must be loaded, or passed to `packedBytes`, first. */
  tensorBytes(t: PlanTensor): number {
    return this.#packed.get(t) ?? 0;
  }

  async loadWeights(
    file: GgufFile,
    plan: Plan,
    progress?: (done: number, total: number) => void,
  ): Promise<void> {
    const packed = (await this.packedBytes(plan.tensors)).reduce((sum, bytes) => sum + bytes, 0);
    const reserve = new WordWriter().u32(plan.tensors.length).u64(packed).bytes();
    await this.#machine.call("compy_model_reserve", this.#handle, reserve);
    await withSources(file, (sources) => this.#loadTensors(file, sources, plan, progress));
  }

  async #loadTensors(
    file: GgufFile,
    sources: ReadonlyMap<string, ByteSource>,
    plan: Plan,
    progress?: (done: number, total: number) => void,
  ): Promise<void> {
    const total = plan.tensors.reduce((sum, t) => sum + t.info.byteLength, 0);
    let done = 0;
    const dequantize = dequantizer((input, bytes) =>
      this.#machine.call("compy_dequantize", this.#handle, input, bytes)
    );
    // The next piece is read while one is packed.
    let packing: Promise<unknown> = Promise.resolve();
    for (const [index, t] of plan.tensors.entries()) {
      try {
        if (t.factors) {
          await packing;
          const words = await factorWords(file, index, t.factors);
          await this.#machine.call("compy_tensor_factors", this.#handle, words);
        }
        const source = t.bytes ? memorySource(await t.bytes(dequantize)) : sources.get(t.info.path)!;
        for await (const piece of pieces(source, t)) {
          await packing;
          packing = this.#machine.call("compy_tensor_rows", this.#handle, pieceWords(index, t, piece));
          packing.catch(() => {}); // the error is thrown where it is awaited
        }
        await packing;
      } catch (cause) {
        const reason = cause instanceof Error ? cause.message : String(cause);
        throw new Error(`Cannot load tensor "${t.info.name}" of ${t.info.path}: ${reason}`, { cause });
      }
      done += t.info.byteLength;
      progress?.(done, total);
    }
  }

  async compile(plan: Plan, options: CompileOptions): Promise<void> {
    await this.#machine.call("compy_plan_compile", this.#handle, encodePlan(plan, options));
    this.#answers = answerShape(plan);
    this.#vocabSize = plan.vocabSize;
    this.#sizes = { groups: kvGroupBytes(plan), state: stateBytes(plan) };
  }

  async step(input: StepInput): Promise<StepOutput> {
    this.#stopping = false;
    this.#machine.set(this.#stopFlag, 0);
    const masks = await this.#masks(input);
    if (masks.length > 0) await this.#giveMasks(masks);
    // Handing over masks resets the stop flag, so a stop that came meanwhile is checked here.
    if (this.#stopping) throw new StepStopped("The step was stopped");
    const bytes = answerBytes(input, this.#answers);
    const words = encodeStep(this.#words.clear(), input);
    const answers = await this.#machine.call("compy_step", this.#handle, words, bytes);
    if (answers.length !== bytes) throw new StepStopped("The step was stopped");
    return decodeAnswers(answers, input, this.#answers);
  }

  async #giveMasks(masks: readonly Uint32Array[]): Promise<void> {
    const step = this.#step++;
    const call = (name: string, input: Uint8Array) => ({ name, handle: this.#handle, input });
    const prepare = new WordWriter(12).u32(step, masks.length, Math.ceil(this.#vocabSize / 32)).bytes();
    await this.#machine.calls([
      call("compy_step_prepare", prepare),
      ...masks.map((mask, index) =>
        call("compy_mask", new WordWriter(8 + mask.byteLength).u32(step, index).i32s(mask).bytes())
      ),
    ]);
  }

  /**
   * Waits for all masks of the step. A step in a worker never waits, because its memory may not be shared. Throws
   * StepStopped if `requestStop` is called first.
   */
  async #masks(input: StepInput): Promise<Uint32Array[]> {
    const masks = input.logits.flatMap(({ mask }) => mask ?? []);
    if (masks.length === 0) return [];
    const stopped = new Promise<never>((_, reject) => {
      this.#stopped = () => reject(new StepStopped("The step was stopped"));
    });
    try {
      return await Promise.race([Promise.all(masks), stopped]);
    } finally {
      this.#stopped = undefined;
    }
  }

  async readCache(parts: CacheParts): Promise<Uint8Array<ArrayBuffer>> {
    const { groups, state } = this.#sizes;
    const bytes = parts.blocks.reduce((sum, { group }) => sum + groups[group], parts.slots.length * state);
    return await this.#machine.call("compy_cache_read", this.#handle, partWords(parts).bytes(), bytes);
  }

  async writeCache(parts: CacheParts, bytes: readonly Uint8Array[]): Promise<void> {
    const message = new Uint8Array(
      await new Blob([partWords(parts).bytes(), ...bytes as Uint8Array<ArrayBuffer>[]]).arrayBuffer(),
    );
    await this.#machine.call("compy_cache_write", this.#handle, message);
  }

  /** Stops the current step. Without shared memory, the step runs to its end. */
  requestStop(): void {
    this.#stopping = true;
    this.#stopped?.();
    this.#machine.set(this.#stopFlag, 1);
  }

  /** Returns the milliseconds spent in each op of the plan since the last call. */
  async profile(plan: Plan): Promise<number[]> {
    const times = view(
      await this.#machine.call("compy_profile", this.#handle, new Uint8Array(0), 8 * plan.ops.length),
    );
    return plan.ops.map((_, i) => Number(times.getBigUint64(8 * i, true)) / 1e6);
  }

  /** Measures the machine's limits. Takes some seconds and half a gigabyte of temporary memory. */
  async measureLimits(): Promise<MachineLimits> {
    const input = new WordWriter(4).u32(this.info.threads).bytes();
    const figures = view(await this.#machine.call("compy_limits", this.#handle, input));
    const [readGbps, int8Gops, f32Gflops] = [0, 8, 16].map((at) => figures.getFloat64(at, true));
    return { readGbps, int8Gops, f32Gflops };
  }

  close(): void {
    this.requestStop();
    this.#machine.close();
  }
}

/** Yields a tensor's rows, some at a time. */
async function* pieces(source: ByteSource, { info, rows, bytes }: PlanTensor): AsyncGenerator<Piece> {
  const [offset, rowBytes] = [bytes ? 0 : info.offset, info.byteLength / rows];
  const most = Math.max(1, Math.floor(PIECE / rowBytes / PANEL_ROWS)) * PANEL_ROWS;
  for (let first = 0; first < rows; first += most) {
    const count = Math.min(most, rows - first);
    yield { first, bytes: await readBytes(source, offset + first * rowBytes, count * rowBytes) };
  }
}

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
