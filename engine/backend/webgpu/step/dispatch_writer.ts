import type { Plan } from "../../../plan/plan.ts";
import type { Arithmetic } from "../../backend.ts";
import type { KernelDevice } from "../kernels/types.ts";
import type { TuningTable } from "../tuning/tuning.ts";
import type { GpuMemory } from "../device/memory.ts";
import { OP_WORDS } from "../ops/shape.ts";
import type { Program, Slice } from "../program.ts";
import type { StepBuffers } from "./layout.ts";
import type { Weights } from "../weights/weights.ts";

export interface DispatchContext {
  readonly device: GPUDevice;
  readonly memory: GpuMemory;
  readonly kernels: KernelDevice;
  readonly arithmetic: Arithmetic;
  readonly tunings: TuningTable;
  readonly plan: Plan;
  readonly program: Program;
  readonly weights: Weights;
  readonly buffers: StepBuffers;
}

/** Bytes between uniforms: the largest alignment that a device may require. */
const SLOT = 256;
const PAGE_SLOTS = 256;

/** Gives ops (`ops/*.ts`) the buffers that their dispatches bind. */
export class DispatchWriter {
  /** The buffer for the next uniforms, and the number of its used slots. */
  #page: Promise<GPUBuffer> | undefined;
  #used = 0;

  constructor(readonly context: DispatchContext) {}

  /** Returns the floats from one row of the slice's buffer to the next. */
  stride({ buffer }: Slice): number {
    return this.context.program.buffers[buffer].stride;
  }

  buffer({ buffer }: Slice): GPUBuffer {
    return this.context.buffers.activations[buffer];
  }

  /** Writes at most OP_WORDS words of uniforms for a kernel's binding 0. */
  async uniforms(words: readonly number[]): Promise<GPUBufferBinding> {
    if (!this.#page || this.#used === PAGE_SLOTS) {
      const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
      const page = this.context.memory.buffer("the uniforms of ops", PAGE_SLOTS * SLOT, usage);
      this.#used = 0;
      this.#page = page;
    }
    const offset = SLOT * this.#used++;
    const data = new Uint32Array(OP_WORDS);
    data.set(words);
    const buffer = await this.#page;
    this.context.device.queue.writeBuffer(buffer, offset, data);
    return { buffer, offset, size: data.byteLength };
  }
}
