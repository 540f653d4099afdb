import { type Piece, wholeOf } from "./costs.ts";
import type { DeviceLoss } from "./device_loss.ts";
import type { Kernel } from "./kernels/types.ts";
import type { GpuMemory } from "./memory.ts";
import { PassClock } from "./pass_clock.ts";
import { FIRST_GROUP_BINDING, type Pipelines } from "./pipelines.ts";
import type { DispatchKind } from "./program.ts";

/** One kernel over fixed buffers; how many rows it takes is said when it is recorded. */
export interface Dispatch {
  /** For profiles and errors, such as "3 matmul attn_q". */
  readonly label: string;
  readonly rows: DispatchKind;
  /** For growing numbers of rows. */
  readonly kernels: readonly Kernel[];
  /** What the kernel's workgroups are counted by, besides rows. */
  readonly n: number;
  readonly bindings: readonly (GPUBuffer | GPUBufferBinding)[];
  /** Bytes of weights that it reads; by default none. */
  readonly bytes?: number;
  /** Steps that it is for; by default all. */
  readonly when?: (size: StepSize) => boolean;
}

/** What one dispatch took, by the GPU's own clock. */
export interface DispatchTime {
  readonly label: string;
  readonly ms: number;
  /** Of weights that it read. */
  readonly bytes: number;
}

/** What one submit took, by the GPU's own clock. */
export interface SubmitTime {
  readonly ms: number;
  /** What it was expected to take. */
  readonly expected: number;
  /** Keys of its kernels. */
  readonly kernels: readonly string[];
}

/** What a step took. */
export interface StepProfile {
  /** This thread's time to record and submit it. */
  readonly recordMs: number;
  readonly dispatches: readonly DispatchTime[];
}

/** Bind groups of a dispatch that are kept: more come only where it is cut in ever other ways. */
const MOST_GROUPS = 64;

/** Rows of a step, its sequences, spans of attention, and the tokens of the longest context. */
export type StepSize = Readonly<Record<DispatchKind | "context", number>>;

/** Writes dispatches into command encoders. Bind groups are made once, when they are first recorded. */
export class Recorder {
  readonly #groups = new WeakMap<Dispatch, Map<string, GPUBindGroup>>();

  /** Uniforms of the first workgroups of pieces. */
  readonly #firsts = new Map<string, GPUBuffer>();

  constructor(
    private readonly device: GPUDevice,
    private readonly loss: DeviceLoss,
    private readonly pipelines: Pipelines,
    private readonly memory: GpuMemory,
  ) {}

  /** Records the pieces into one pass, which may take stamps where it begins and ends. */
  record(
    encoder: GPUCommandEncoder,
    pieces: readonly Piece[],
    timestampWrites?: GPUComputePassTimestampWrites,
  ): void {
    const pass = encoder.beginComputePass({ timestampWrites });
    for (const piece of pieces) this.#dispatch(pass, piece);
    pass.end();
  }

  /** Runs the dispatches that have rows, each in a pass of its own between two timestamps. */
  async time(dispatches: readonly Dispatch[], size: StepSize): Promise<DispatchTime[]> {
    const pieces = dispatches.filter((dispatch) => isFor(dispatch, size)).map((d) => wholeOf(d, size));
    const clock = await PassClock.make(this.device, this.loss, this.memory, pieces.length);
    try {
      const encoder = this.device.createCommandEncoder();
      for (const piece of pieces) this.record(encoder, [piece], clock.next());
      this.device.queue.submit([encoder.finish()]);
      const times = await clock.read();
      return pieces.map(({ dispatch: { label, bytes = 0 } }, i) => {
        const { begin, end } = times[i];
        return { label, bytes, ms: end - begin };
      });
    } finally {
      clock.free();
    }
  }

  #dispatch(pass: GPUComputePassEncoder, piece: Piece): void {
    pass.setPipeline(this.pipelines.get(piece.kernel));
    pass.setBindGroup(0, this.#group(piece));
    pass.dispatchWorkgroups(...piece.groups);
  }

  #group({ dispatch, kernel, first }: Piece): GPUBindGroup {
    let groups = this.#groups.get(dispatch);
    if (!groups || groups.size > MOST_GROUPS) this.#groups.set(dispatch, groups = new Map());
    const key = `${kernel.key} ${first}`;
    let group = groups.get(key);
    if (!group) {
      const bound = dispatch.bindings.map((resource, binding): GPUBindGroupEntry => ({
        binding,
        resource: resource instanceof GPUBuffer ? { buffer: resource } : resource,
      }));
      group = this.device.createBindGroup({
        label: dispatch.label,
        layout: this.pipelines.get(kernel).getBindGroupLayout(0),
        entries: [...bound, { binding: FIRST_GROUP_BINDING, resource: { buffer: this.#first(first) } }],
      });
      groups.set(key, group);
    }
    return group;
  }

  #first(first: Piece["first"]): GPUBuffer {
    let buffer = this.#firsts.get(`${first}`);
    if (!buffer) {
      buffer = this.memory.constant("the first workgroup", Uint32Array.of(...first, 0));
      this.#firsts.set(`${first}`, buffer);
    }
    return buffer;
  }
}

/** Whether a step has the dispatch. */
export function isFor({ rows, when }: Dispatch, size: StepSize): boolean {
  return size[rows] > 0 && when?.(size) !== false;
}
