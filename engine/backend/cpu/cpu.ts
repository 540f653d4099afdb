import { LibraryNotFound } from "../../../ffi/find.ts";
import { KernelLibrary } from "../../../ffi/library.ts";
import { FORMATS } from "../../gguf/formats.ts";
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
import { dequantizer, factorWords, pieceWords } from "./weight_words.ts";
import { answerBytes, answerShape, decodeAnswers, encodeStep, partWords } from "./step_words.ts";

export interface CpuOptions {
  /** Number of kernel threads; by default one per physical core. */
  readonly threads?: number;
  /** Name of the instruction set; by default the best that the CPU has. */
  readonly isa?: string;
  /** The processors on which the threads run; by default all. The operating system may ignore this choice. */
  readonly processors?: readonly number[];
}

/** A NUMA node: processors that share one memory, and the number of their physical cores. */
export interface CpuNode {
  readonly cores: number;
  readonly processors: readonly number[];
}

/** Maximum bytes of a message buffer to keep for reuse. */
const MOST_KEPT = 32 * 2 ** 20;
/** Maximum bytes of an error message. */
const MESSAGE_BYTES = 4096;

/** Runs plans on the native Rust kernels, with one non-blocking call per step. */
export class CpuBackend implements Backend {
  static #digest: string | undefined;
  readonly info: BackendInfo;
  readonly abilities: Abilities = { copies: this, pools: true };
  readonly wholeRows: number;
  readonly #library = KernelLibrary.open();
  readonly #handle: bigint;
  readonly #words = new WordWriter(1 << 16);
  #output = new Uint8Array(1 << 16);
  /** Reused memory for cache parts to copy in: allocating it each time would cost more than the copy. */
  #message = new Uint8Array(0);
  /** Words of the grammar mask for the step, and the buffer for its answer. */
  readonly #mask = new WordWriter();
  readonly #answer = new Uint8Array(MESSAGE_BYTES);
  #answers = { pooled: 0, tallies: 0 };
  #vocabSize = 0;
  /** Bytes of a KV block of each group, and of a slot of recurrent state. */
  #sizes = { groups: [0], state: 0 };
  /** Sequential number of the current or next step. */
  #step = 0;

  /**
   * Opens the native kernels. Throws LibraryNotFound without them, and KernelError if the CPU lacks the instruction set
   * or threads cannot start.
   */
  constructor(options: CpuOptions = {}) {
    const threads = options.threads ?? view(this.#library.call("compy_cores", 0n)).getUint32(0, true);
    const processors = options.processors ?? [];
    const input = new WordWriter().u32(threads).u32(processors.length);
    for (const processor of processors) input.u32(processor);
    input.text(options.isa ?? "");
    this.#handle = view(this.#library.call("compy_model_new", 0n, input.bytes())).getBigUint64(0, true);
    const isa = new TextDecoder().decode(this.#library.call("compy_model_isa", this.#handle));
    this.info = { name: "cpu", isa, threads };
    this.wholeRows = view(this.#library.call("compy_model_whole_rows", this.#handle)).getUint32(0, true);
  }

  /** Returns the NUMA nodes that this process may use; an empty array if they are unknown. Throws LibraryNotFound. */
  static nodes(): CpuNode[] {
    const words = view(KernelLibrary.open().call("compy_nodes", 0n));
    const nodes: CpuNode[] = [];
    for (let at = 0; at < words.byteLength;) {
      const [cores, count] = [words.getUint32(at, true), words.getUint32(at + 4, true)];
      const processors = Array.from({ length: count }, (_, i) => words.getUint32(at + 8 + 4 * i, true));
      nodes.push({ cores, processors });
      at += 8 + 4 * count;
    }
    return nodes;
  }

  /**
   * Returns a short reason why there are no native kernels; undefined if there are. Throws LibraryNotFound if the user
   * named a library that does not exist.
   */
  static missing(): string | undefined {
    try {
      KernelLibrary.open();
    } catch (error) {
      if (!(error instanceof LibraryNotFound) || error.named) throw error;
      const [nearest] = error.places.filter(({ problem }) => problem !== "missing");
      return nearest ? `${nearest.path}: ${nearest.reason}` : "no library was found";
    }
  }

  /**
   * Returns the names of the instruction sets that this CPU has, best first. Throws LibraryNotFound without native
   * kernels.
   */
  static instructionSets(): string[] {
    return new TextDecoder().decode(KernelLibrary.open().call("compy_instruction_sets", 0n)).split(",");
  }

  /**
   * Returns the SHA-256 of the kernels, because another build may round differently. It is computed once per process.
   */
  async kernelsDigest(): Promise<string> {
    return CpuBackend.#digest ??= await digestOf(this.#library.path);
  }

  /** Returns the packed bytes of each tensor. */
  packedBytes(tensors: readonly PlanTensor[]): number[] {
    return tensors.map((t) => this.tensorBytes(t));
  }

  /** Returns the packed bytes of one matrix; 0 for a vector. */
  tensorBytes(t: PlanTensor): number {
    if (t.kind === "vector") return 0;
    const input = new WordWriter().u32(FORMATS[t.info.type].id, t.columns, t.rows).bytes();
    return Number(view(this.#library.call("compy_packed_bytes", this.#handle, input)).getBigUint64(0, true));
  }

  async loadWeights(
    file: GgufFile,
    plan: Plan,
    progress?: (done: number, total: number) => void,
  ): Promise<void> {
    const packed = this.packedBytes(plan.tensors).reduce((sum, bytes) => sum + bytes, 0);
    const open = new WordWriter().u32(plan.tensors.length).u64(packed).text(file.path).bytes();
    this.#library.call("compy_model_open", this.#handle, open);
    let path = file.path;
    const total = plan.tensors.reduce((sum, t) => sum + t.info.byteLength, 0);
    const dequantize = dequantizer((input, bytes) => {
      const output = new Uint8Array(Math.max(bytes, MESSAGE_BYTES));
      return this.#library.callAsync("compy_dequantize", this.#handle, input, output);
    });
    let done = 0;
    for (const [index, t] of plan.tensors.entries()) {
      const input = new WordWriter()
        .u32(index, t.kind === "vector" ? 1 : 0, FORMATS[t.info.type].id, t.columns, t.rows)
        .u64(t.info.offset).bytes();
      try {
        if (t.info.path !== path && !t.bytes) {
          path = t.info.path;
          this.#library.call("compy_model_file", this.#handle, new TextEncoder().encode(path));
        }
        if (t.factors) {
          this.#library.call("compy_tensor_factors", this.#handle, await factorWords(file, index, t.factors));
        }
        if (t.bytes) {
          const piece = { first: 0, bytes: await t.bytes(dequantize) };
          await this.#library.callAsync("compy_tensor_rows", this.#handle, pieceWords(index, t, piece));
        } else {
          await this.#library.callAsync("compy_tensor_load", this.#handle, input);
        }
      } catch (cause) {
        const reason = cause instanceof Error ? cause.message : String(cause);
        throw new Error(`Cannot load tensor "${t.info.name}" of ${t.info.path}: ${reason}`, { cause });
      }
      done += t.info.byteLength;
      progress?.(done, total);
    }
  }

  async compile(plan: Plan, options: CompileOptions): Promise<void> {
    await this.#library.callAsync("compy_plan_compile", this.#handle, encodePlan(plan, options));
    this.#answers = answerShape(plan);
    this.#vocabSize = plan.vocabSize;
    this.#sizes = { groups: kvGroupBytes(plan), state: stateBytes(plan) };
  }

  async step(input: StepInput): Promise<StepOutput> {
    const bytes = answerBytes(input, this.#answers);
    if (this.#output.length < bytes) this.#output = new Uint8Array(2 * bytes);
    const words = encodeStep(this.#words.clear(), input);
    const masks = input.logits.flatMap(({ mask }) => mask ?? []);
    const step = this.#prepare(masks.length);
    let failure: unknown;
    const given = masks.map((mask, index) =>
      mask.then((words) => this.#giveMask(step, index, words)).catch((error) => {
        failure ??= error;
        this.requestStop();
      })
    );
    // Without this wait, waiting steps could occupy all threads, and no thread would be left to compute their masks.
    if (!this.#library.startsCallsAtOnce) await Promise.all(given);
    const answers = await this.#library.callAsync("compy_step", this.#handle, words, this.#output)
      .finally(() => this.#step++);
    if (answers.length !== bytes) throw failure ?? new StepStopped("The step was stopped");
    // A copy, because the next step overwrites the buffer.
    return decodeAnswers(answers.slice(), input, this.#answers);
  }

  async readCache(parts: CacheParts): Promise<Uint8Array<ArrayBuffer>> {
    const { groups, state } = this.#sizes;
    const bytes = parts.blocks.reduce((sum, { group }) => sum + groups[group], parts.slots.length * state);
    const output = new Uint8Array(Math.max(bytes, MESSAGE_BYTES));
    return await this.#library.callAsync("compy_cache_read", this.#handle, partWords(parts).bytes(), output);
  }

  async writeCache(parts: CacheParts, bytes: readonly Uint8Array[]): Promise<void> {
    const pieces = [partWords(parts).bytes(), ...bytes];
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const message = length <= this.#message.length ? this.#message : new Uint8Array(length);
    if (length <= MOST_KEPT) this.#message = message;
    let at = 0;
    for (const piece of pieces) {
      message.set(piece, at);
      at += piece.length;
    }
    await this.#library.callAsync("compy_cache_write", this.#handle, message.subarray(0, length));
  }

  requestStop(): void {
    this.#library.call("compy_stop", this.#handle);
  }

  /** Announces a step that waits for `masks` grammar masks. Returns the step's number. */
  #prepare(masks: number): number {
    const words = Math.ceil(this.#vocabSize / 32);
    const input = new WordWriter(12).u32(this.#step, masks, words).bytes();
    this.#library.call("compy_step_prepare", this.#handle, input);
    return this.#step;
  }

  /** Hands a grammar mask to the waiting step. Does nothing if the step has ended. */
  #giveMask(step: number, index: number, mask: Uint32Array): void {
    if (step !== this.#step) return;
    const input = this.#mask.clear().u32(step, index).i32s(mask).bytes();
    this.#library.call("compy_mask", this.#handle, input, this.#answer);
  }

  /** Returns the milliseconds spent in each op of the plan since the last call. */
  async profile(plan: Plan): Promise<number[]> {
    const output = new Uint8Array(8 * plan.ops.length);
    const times = view(
      await this.#library.callAsync("compy_profile", this.#handle, new Uint8Array(0), output),
    );
    return plan.ops.map((_, i) => Number(times.getBigUint64(8 * i, true)) / 1e6);
  }

  /** Measures the machine's limits. Takes some seconds and half a gigabyte of temporary memory. */
  async measureLimits(): Promise<MachineLimits> {
    const input = new WordWriter().u32(this.info.threads).bytes();
    const figures = view(await this.#library.callAsync("compy_limits", this.#handle, input));
    const [readGbps, int8Gops, f32Gflops] = [0, 8, 16].map((at) => figures.getFloat64(at, true));
    return { readGbps, int8Gops, f32Gflops };
  }

  close(): void {
    this.#library.call("compy_model_free", this.#handle);
  }
}

async function digestOf(path: string): Promise<string> {
  const { createHash } = process.getBuiltinModule("node:crypto");
  const bytes = await process.getBuiltinModule("node:fs").promises.readFile(path);
  return createHash("sha256").update(bytes).digest("hex");
}

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
