/** A GPU of paper: what a backend would dispatch, with all its uniforms, where there is no device and are no weights. */
import type { Arithmetic, StepInput } from "../engine/backend/backend.ts";
import { DispatchWriter } from "../engine/backend/webgpu/dispatches.ts";
import { planeRowBytes } from "../engine/backend/webgpu/kernels/planes.ts";
import type { KernelDevice } from "../engine/backend/webgpu/kernels/types.ts";
import { lower } from "../engine/backend/webgpu/lowering.ts";
import { GpuMemory } from "../engine/backend/webgpu/memory.ts";
import { candidateDispatches } from "../engine/backend/webgpu/ops/candidates.ts";
import type { Program } from "../engine/backend/webgpu/program.ts";
import { type Dispatch, isFor, type StepSize } from "../engine/backend/webgpu/recorder.ts";
import { makeStepBuffers } from "../engine/backend/webgpu/step_buffers.ts";
import { encodeStep } from "../engine/backend/webgpu/step_data.ts";
import type { Shard, Weights } from "../engine/backend/webgpu/weights.ts";
import type { Plan } from "../engine/plan/plan.ts";

/** What was written into a buffer, as far as it is small: uniforms, rows, block tables. */
class PaperBuffer {
  #bytes: Uint8Array<ArrayBuffer> | undefined;

  constructor(readonly size: number, readonly label: string) {}

  write(offset: number, data: ArrayBufferView): void {
    if (data.byteLength > MOST_KEPT) return;
    this.#bytes ??= new Uint8Array(Math.min(this.size, MOST_KEPT));
    this.#bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
  }

  words(offset = 0, size = this.size): Uint32Array | undefined {
    return this.#bytes &&
      new Uint32Array(this.#bytes.slice(offset, Math.min(offset + size, this.#bytes.length)).buffer);
  }

  destroy(): void {}
}

const MOST_KEPT = 1 << 20;
const ENOUGH = 2 ** 50;

/** Only what allocations and the writer of dispatches use. */
function paperDevice(): GPUDevice {
  const device = {
    limits: { maxBufferSize: ENOUGH, maxStorageBufferBindingSize: ENOUGH },
    createBuffer: ({ size, label }: { size: number; label: string }) => new PaperBuffer(size, label),
    pushErrorScope: () => {},
    popErrorScope: () => Promise.resolve(null),
    queue: {
      writeBuffer: (buffer: PaperBuffer, offset: number, data: ArrayBufferView) => buffer.write(offset, data),
    },
  };
  return device as unknown as GPUDevice;
}

/** A dispatch of a step: which kernel, how many workgroups, and the words that are known of its bindings. */
export interface PaperDispatch {
  readonly dispatch: Dispatch;
  readonly kernel: Dispatch["kernels"][number];
  readonly workgroups: readonly [number, number, number];
  readonly words: ReadonlyMap<number, Uint32Array>;
  /** Rows that it computes. */
  readonly rows: number;
}

/** What the backend would dispatch for a step of a plan. Throws where the GPU cannot run it. */
export async function dispatchesOf(
  plan: Plan,
  input: StepInput,
  kernels: KernelDevice,
  arithmetic: Arithmetic,
): Promise<PaperDispatch[]> {
  const program = lower(plan);
  const device = paperDevice();
  const memory = new GpuMemory(device);
  const context = Math.max(...input.sequences.map(({ cached, length }) => cached + length));
  const kvBlocks = Math.max(...input.sequences.flatMap(({ blockTable }) => [...blockTable])) + 1;
  const options = {
    kvBlocks,
    maxRows: input.tokens.length,
    maxLogitRows: Math.max(1, input.logits.length),
    stateSlots: input.sequences.length,
  };
  const buffers = await makeStepBuffers(device, memory, plan, program, options, ENOUGH);
  const data = encodeStep(input, plan.vocabSize, buffers.layout);
  const size: StepSize = {
    step: input.tokens.length,
    sequences: input.sequences.length,
    logits: input.logits.length,
    singles: data.spans.singles.length,
    tiles: data.spans.tiles.length,
    context,
  };
  const written: [GPUBuffer | GPUBufferBinding, Uint32Array<ArrayBuffer>][] = [
    [buffers.rows, data.rows],
    [buffers.tables, data.tables],
    [buffers.carries, data.carries],
    [buffers.chosen, data.chosen],
    [buffers.counts.step, Uint32Array.of(size.step, 0, 0, 0)],
    [buffers.counts.logits, Uint32Array.of(size.logits, 0, 0, 0)],
  ];
  for (const [to, words] of written) device.queue.writeBuffer("buffer" in to ? to.buffer : to, 0, words);
  const weights = await paperWeights(memory, plan, program);
  const writer = new DispatchWriter({
    device,
    memory,
    kernels,
    arithmetic,
    tunings: new Map(),
    plan,
    program,
    weights,
    buffers,
  });
  const answers = {
    wants: await memory.storage("wants", 4 * data.wants.length),
    answers: await memory.storage("answers", 4 * data.answerWords),
  };
  device.queue.writeBuffer(answers.wants, 0, data.wants);
  const { parts, candidates } = await candidateDispatches(writer, answers);
  return [...await writer.model(), parts, candidates].filter((d) => isFor(d, size)).map((dispatch) => {
    const rows = size[dispatch.rows];
    const kernel = dispatch.kernels.find(({ maxRows }) => rows <= maxRows)!;
    const words = new Map<number, Uint32Array>();
    for (const [i, bound] of dispatch.bindings.entries()) {
      const { buffer, offset = 0, size } = "buffer" in bound ? bound : { buffer: bound };
      const known = (buffer as unknown as PaperBuffer).words(offset, size);
      if (known) words.set(i, known);
    }
    return { dispatch, kernel, workgroups: kernel.workgroups(dispatch.n, rows, context), words, rows };
  });
}

async function paperWeights(memory: GpuMemory, plan: Plan, program: Program): Promise<Weights> {
  const matrices = await Promise.all(program.matrices.map(async ({ tensors, paired, columns, rows }) => {
    const bytes = planeRowBytes(plan.tensors[tensors[0]].info.type, columns);
    const planes = await Promise.all(
      bytes.map((n) => memory.storage("a plane", n * rows * (paired ? 2 : 1))),
    );
    return [{ first: 0, rows, planes }] satisfies Shard[];
  }));
  const vectors = await Promise.all(program.vectors.map(({ parts }) => {
    return memory.storage("a vector", 4 * parts.reduce((sum, { length }) => sum + length, 0));
  }));
  return { matrices, vectors };
}
