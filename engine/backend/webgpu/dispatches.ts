import type { Plan } from "../../plan/plan.ts";
import type { Arithmetic } from "../backend.ts";
import type { Kernel, KernelDevice } from "./kernels/types.ts";
import type { GpuMemory } from "./memory.ts";
import { attentionKernel, mergeKernel, sharesContext } from "./ops/attention.ts";
import { deltaRuleKernel } from "./ops/delta_rule.ts";
import { adjustKernel, candidatesKernel, partsKernel, partsOf } from "./ops/candidates.ts";
import { drawKernel } from "./ops/draw.ts";
import { rmsNormKernel, siluMultiplyKernel } from "./ops/norm.ts";
import { ropeKernel } from "./ops/rope.ts";
import { OP_WORDS } from "./ops/shape.ts";
import { embedKernel, matMulKernels } from "./kernels/matmul.ts";
import { tuningKey, type TuningTable } from "./kernels/tuning.ts";
import type { DispatchKind, GpuOp, Program, Slice } from "./program.ts";
import type { Dispatch, StepSize } from "./recorder.ts";
import type { StepBuffers } from "./step_buffers.ts";
import type { Weights } from "./weights.ts";

/** What a step's rows want of their logits, and the answers; replaced by larger ones as needed. */
export interface AnswerBuffers {
  readonly wants: GPUBuffer;
  readonly answers: GPUBuffer;
}

/** In this order: `adjust` only where a row has penalties, bias or a mask, `draw` where one draws its token. */
export interface CandidateDispatches {
  readonly parts: Dispatch;
  readonly adjust: Dispatch;
  readonly candidates: Dispatch;
  readonly draw: Dispatch;
}

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

/** Bytes between uniforms: the largest alignment that a device may demand. */
const SLOT = 256;
const PAGE_SLOTS = 256;

/** Turns a program's ops into dispatches with all their buffers, one for each shard. */
export class DispatchWriter {
  /** Where uniforms are put, and slots of it that are taken. */
  #page: Promise<GPUBuffer> | undefined;
  #used = 0;

  constructor(private readonly context: DispatchContext) {}

  /** All that comes before the candidates. */
  async model(): Promise<Dispatch[]> {
    const dispatches: Dispatch[] = [];
    for (const op of this.context.program.ops) dispatches.push(...await this.#op(op));
    return dispatches;
  }

  /** The last op's dispatches. */
  async candidates({ wants, answers }: AnswerBuffers): Promise<CandidateDispatches> {
    const op = this.context.program.ops.find((op) => op.op === "candidates")!;
    const { vocabSize } = this.context.plan;
    const { activations, parts, chosen, rows } = this.context.buffers;
    const logits = activations[op.x.buffer];
    const words = [vocabSize, this.#stride(op.x), op.x.offset, partsOf(vocabSize)];
    const uniforms = await this.#uniforms(words);
    const make = (label: string, kernel: Kernel, buffers: GPUBuffer[]) =>
      this.#dispatch(`- ${label}`, "logits", [kernel], vocabSize, [uniforms, ...buffers]);
    return {
      parts: make("logit_parts", partsKernel(), [logits, wants, parts, answers, chosen, rows]),
      adjust: make("adjust", adjustKernel(), [logits, wants, answers]),
      candidates: make("candidates", candidatesKernel(), [logits, wants, parts, answers]),
      draw: make("draw_tokens", drawKernel(), [logits, wants, parts, answers, chosen, rows]),
    };
  }

  #op(op: GpuOp): Promise<Dispatch[]> | Dispatch[] {
    switch (op.op) {
      case "embed":
        return this.#embed(op);
      case "rms_norm":
        return this.#rmsNorm(op);
      case "matmul":
        return this.#matmul(op);
      case "rope_append":
        return this.#ropeAppend(op);
      case "attention":
        return this.#attention(op);
      case "delta_rule":
        return this.#deltaRule(op);
      case "silu_multiply":
        return this.#siluMultiply(op);
      case "candidates":
        return [];
    }
  }

  #embed(op: GpuOp & { op: "embed" }): Promise<Dispatch[]> {
    const { program, plan, weights, buffers } = this.context;
    const { tensors, columns } = program.matrices[op.matrix];
    const kernel = embedKernel(plan.tensors[tensors[0]].info.type, columns);
    return Promise.all(weights.matrices[op.matrix].map(async ({ first, rows, planes }) => {
      const uniforms = await this.#uniforms([columns, rows, first, this.#stride(op.y)]);
      const bindings = [uniforms, buffers.counts.step, buffers.rows, this.#buffer(op.y), ...planes];
      return this.#dispatch(label(op), op.rows, [kernel], columns, bindings);
    }));
  }

  async #rmsNorm(op: GpuOp & { op: "rms_norm" }): Promise<Dispatch[]> {
    const { weights, buffers } = this.context;
    const uniforms = await this.#uniforms([...this.#two(op.columns, op.x, op.y), float(op.eps)]);
    const bindings = [uniforms, this.#buffer(op.x), this.#buffer(op.y), weights.vectors[op.weight]];
    if (op.gather) bindings.push(buffers.chosen);
    return [this.#dispatch(label(op), op.rows, [rmsNormKernel(op.gather)], op.columns, bindings)];
  }

  #matmul(op: GpuOp & { op: "matmul" }): Promise<Dispatch[]> {
    const { program, plan, weights, buffers, arithmetic, tunings } = this.context;
    const { tensors, columns } = program.matrices[op.matrix];
    const { type, name } = plan.tensors[tensors[0]].info;
    const bias = op.bias !== undefined;
    const spec = { type, arithmetic, columns, epilogue: op.epilogue, bias };
    const kernels = matMulKernels(spec, this.context.kernels, tunings.get(tuningKey(type, arithmetic)));
    return Promise.all(weights.matrices[op.matrix].map(async ({ first, rows, planes }) => {
      const words = [columns, rows, this.#stride(op.x), this.#stride(op.y), op.y.offset + first, first];
      const bindings: Dispatch["bindings"][number][] = [
        await this.#uniforms(words),
        buffers.counts[op.rows],
        this.#buffer(op.x),
        this.#buffer(op.y),
        ...planes,
      ];
      if (bias) bindings.push(weights.vectors[op.bias!]);
      const bytes = planes.reduce((sum, plane) => sum + plane.size, 0);
      return { ...this.#dispatch(`${label(op)} ${name}`, op.rows, kernels, rows, bindings), bytes };
    }));
  }

  async #ropeAppend(op: GpuOp & { op: "rope_append" }): Promise<Dispatch[]> {
    const { weights, buffers, program } = this.context;
    const { stride } = program.buffers[op.buffer];
    const kernel = ropeKernel({ ...op, norms: op.norms !== undefined });
    const bindings: Dispatch["bindings"][number][] = [
      await this.#uniforms([stride, op.at.q, op.at.k, op.at.v, float(op.eps)]),
      buffers.activations[op.buffer],
      buffers.keys[op.cache],
      buffers.values[op.cache],
      buffers.rows,
      buffers.tables,
      buffers.angles,
    ];
    if (op.norms !== undefined) bindings.push(weights.vectors[op.norms]);
    return [this.#dispatch(label(op), op.rows, [kernel], 1, bindings)];
  }

  async #attention(op: GpuOp & { op: "attention" }): Promise<Dispatch[]> {
    const { keys, values, rows, tables, partials, contexts } = this.context.buffers;
    const [q, y] = [op.q, op.y];
    const words = [this.#stride(q), q.offset, this.#stride(y), y.offset, float(op.scale), contexts.count];
    const uniforms = await this.#uniforms(words);
    const cache = [keys[op.cache], values[op.cache], rows, tables];
    const shares = ({ step, context }: StepSize) => sharesContext(op.heads, contexts, step, context);
    const make = (name: string, kernel: Kernel, more: GPUBuffer[], when: Dispatch["when"]): Dispatch => {
      const bindings = [uniforms, ...more];
      return { ...this.#dispatch(`${label(op)}${name}`, op.rows, [kernel], 1, bindings), when };
    };
    const alone = attentionKernel(op.heads, contexts);
    const shared = attentionKernel(op.heads, contexts, true);
    const merge = mergeKernel(op.heads, contexts);
    const [query, out] = [this.#buffer(q), this.#buffer(y)];
    return [
      make("", alone, [query, out, ...cache], (size) => !shares(size)),
      make(" of parts", shared, [query, partials, ...cache], shares),
      make(" merged", merge, [out, partials, rows, ...op.heads.gated ? [query] : []], shares),
    ];
  }

  async #deltaRule(op: GpuOp & { op: "delta_rule" }): Promise<Dispatch[]> {
    const { weights, buffers, program } = this.context;
    const { qkv, gate, alpha, beta } = op.at;
    const { stride } = program.buffers[op.buffer];
    const words = [stride, qkv, gate, alpha, beta, this.#stride(op.y), op.y.offset, float(op.eps)];
    const bindings = [
      await this.#uniforms(words),
      buffers.activations[op.buffer],
      this.#buffer(op.y),
      buffers.states[op.heads.layer],
      buffers.carries,
      weights.vectors[op.weights],
    ];
    return [this.#dispatch(label(op), op.rows, [deltaRuleKernel(op)], 1, bindings)];
  }

  async #siluMultiply(op: GpuOp & { op: "silu_multiply" }): Promise<Dispatch[]> {
    const uniforms = await this.#uniforms(this.#two(op.columns, op.x, op.y));
    const bindings = [uniforms, this.#buffer(op.x), this.#buffer(op.y)];
    return [this.#dispatch(label(op), op.rows, [siluMultiplyKernel()], op.columns, bindings)];
  }

  #two(columns: number, x: Slice, y: Slice): number[] {
    return [columns, this.#stride(x), x.offset, this.#stride(y), y.offset];
  }

  #stride({ buffer }: Slice): number {
    return this.context.program.buffers[buffer].stride;
  }

  #buffer({ buffer }: Slice): GPUBuffer {
    return this.context.buffers.activations[buffer];
  }

  async #uniforms(words: readonly number[]): Promise<GPUBufferBinding> {
    if (!this.#page || this.#used === PAGE_SLOTS) {
      const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
      const page = this.context.memory.buffer("the ops' numbers", PAGE_SLOTS * SLOT, usage);
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

  #dispatch(
    label: string,
    rows: DispatchKind,
    kernels: readonly Kernel[],
    n: number,
    bindings: Dispatch["bindings"],
  ): Dispatch {
    return { label, rows, kernels, n, bindings };
  }
}

function label(op: GpuOp): string {
  return `${op.layer ?? "-"} ${op.op}`;
}

/** The bits of an f32. */
function float(value: number): number {
  return new Uint32Array(Float32Array.of(value).buffer)[0];
}
