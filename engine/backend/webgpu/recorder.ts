import type { Kernel } from "./kernels/types.ts";
import type { GpuMemory } from "./memory.ts";
import type { Pipelines } from "./pipelines.ts";
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

/** What a step took. */
export interface StepProfile {
  /** This thread's time to record and submit it. */
  readonly recordMs: number;
  readonly dispatches: readonly DispatchTime[];
}

/** Dispatches that are timed together: a query set holds at most 4,096 stamps. */
const MOST_TIMED = 2048;

/** Rows of a step, its sequences, spans of attention, and the tokens of the longest context. */
export type StepSize = Readonly<Record<DispatchKind | "context", number>>;

/** Writes dispatches into command encoders. Bind groups are made once, when they are first recorded. */
export class Recorder {
  readonly #groups = new Map<Dispatch, Map<string, GPUBindGroup>>();

  constructor(private readonly device: GPUDevice, private readonly pipelines: Pipelines) {}

  /** Records all dispatches that have rows into one pass. */
  record(encoder: GPUCommandEncoder, dispatches: readonly Dispatch[], size: StepSize): void {
    const pass = encoder.beginComputePass();
    for (const dispatch of dispatches) this.#dispatch(pass, dispatch, size);
    pass.end();
  }

  /** Runs the dispatches that have rows, each in a pass of its own between two timestamps. */
  async time(
    dispatches: readonly Dispatch[],
    size: StepSize,
    memory: GpuMemory,
  ): Promise<DispatchTime[]> {
    const times: DispatchTime[] = [];
    const used = dispatches.filter((dispatch) => isFor(dispatch, size));
    for (let first = 0; first < used.length; first += MOST_TIMED) {
      times.push(...await this.#time(used.slice(first, first + MOST_TIMED), size, memory));
    }
    return times;
  }

  async #time(
    dispatches: readonly Dispatch[],
    size: StepSize,
    memory: GpuMemory,
  ): Promise<DispatchTime[]> {
    const count = 2 * dispatches.length;
    const querySet = this.device.createQuerySet({ type: "timestamp", count });
    const { QUERY_RESOLVE, COPY_SRC, MAP_READ, COPY_DST } = GPUBufferUsage;
    const resolved = await memory.buffer("timestamps", 8 * count, QUERY_RESOLVE | COPY_SRC);
    const back = await memory.buffer("timestamps on their way", 8 * count, MAP_READ | COPY_DST);
    try {
      const encoder = this.device.createCommandEncoder();
      for (const [i, dispatch] of dispatches.entries()) {
        const indices = { beginningOfPassWriteIndex: 2 * i, endOfPassWriteIndex: 2 * i + 1 };
        const pass = encoder.beginComputePass({ timestampWrites: { querySet, ...indices } });
        this.#dispatch(pass, dispatch, size);
        pass.end();
      }
      encoder.resolveQuerySet(querySet, 0, count, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, back, 0, 8 * count);
      this.device.queue.submit([encoder.finish()]);
      await back.mapAsync(GPUMapMode.READ);
      const stamps = new BigUint64Array(back.getMappedRange(0, 8 * count).slice(0));
      return dispatches.map(({ label, bytes = 0 }, i) => ({
        label,
        bytes,
        ms: Number(stamps[2 * i + 1] - stamps[2 * i]) / 1e6,
      }));
    } finally {
      querySet.destroy();
      memory.free(resolved);
      memory.free(back);
    }
  }

  #dispatch(pass: GPUComputePassEncoder, dispatch: Dispatch, size: StepSize): void {
    if (!isFor(dispatch, size)) return;
    const m = size[dispatch.rows];
    const kernel = dispatch.kernels.find(({ maxRows }) => m <= maxRows)!;
    pass.setPipeline(this.pipelines.get(kernel));
    pass.setBindGroup(0, this.#group(dispatch, kernel));
    pass.dispatchWorkgroups(...kernel.workgroups(dispatch.n, m, size.context));
  }

  #group(dispatch: Dispatch, kernel: Kernel): GPUBindGroup {
    let groups = this.#groups.get(dispatch);
    if (!groups) this.#groups.set(dispatch, groups = new Map());
    let group = groups.get(kernel.key);
    if (!group) {
      group = this.device.createBindGroup({
        label: dispatch.label,
        layout: this.pipelines.get(kernel).getBindGroupLayout(0),
        entries: dispatch.bindings.map((bound, binding) => ({
          binding,
          resource: bound instanceof GPUBuffer ? { buffer: bound } : bound,
        })),
      });
      groups.set(kernel.key, group);
    }
    return group;
  }
}

/** Whether a step has the dispatch. */
export function isFor({ rows, when }: Dispatch, size: StepSize): boolean {
  return size[rows] > 0 && when?.(size) !== false;
}
