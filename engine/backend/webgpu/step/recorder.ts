import { type Piece, wholeOf } from "./costs.ts";
import type { DeviceLoss } from "../device/device_loss.ts";
import type { GpuMemory } from "../device/memory.ts";
import { PassClock } from "../device/pass_clock.ts";
import { FIRST_GROUP_BINDING, type Pipelines } from "../device/pipelines.ts";
import { type Dispatch, type DispatchTime, isFor, type StepSize } from "./dispatch.ts";

/** Maximum bind groups kept per dispatch. A dispatch needs more only if steps cut it in more different ways. */
const MOST_GROUPS = 64;

/** Writes dispatches into command encoders. Bind groups are made when they are first recorded. */
export class Recorder {
  readonly #groups = new WeakMap<Dispatch, Map<string, GPUBindGroup>>();

  /** Uniform buffers with the first workgroup's id of pieces. */
  readonly #firsts = new Map<string, GPUBuffer>();

  constructor(
    private readonly device: GPUDevice,
    private readonly loss: DeviceLoss,
    private readonly pipelines: Pipelines,
    private readonly memory: GpuMemory,
  ) {}

  /** Records the pieces in one pass, with optional timestamps at its start and end. */
  record(
    encoder: GPUCommandEncoder,
    pieces: readonly Piece[],
    timestampWrites?: GPUComputePassTimestampWrites,
  ): void {
    const pass = encoder.beginComputePass({ timestampWrites });
    for (const piece of pieces) this.#dispatch(pass, piece);
    pass.end();
  }

  /** Runs the dispatches that the step needs, each in its own pass between two timestamps. */
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
