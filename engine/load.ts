import { basename } from "@std/path";
import { buildPlan, readRopeFactors } from "./architectures/registry.ts";
import { type Arithmetic, type BackendName, KV_BLOCK_TOKENS, type KvType } from "./backend/backend.ts";
import { type AnyBackend, prepareBackend } from "./backend/choose.ts";
import { LlmEngine } from "./engine.ts";
import { openGguf } from "./gguf/reader.ts";
import { ReloadingEngine } from "./reloading.ts";
import { kvBytesPerToken, type Plan, stateBytes, withKvType } from "./plan/plan.ts";
import type { EngineLimits } from "./scheduler.ts";
import { createChatTemplate } from "./tokenizer/chat_template.ts";
import { createTokenizer } from "./tokenizer/tokenizer.ts";
import type { Tokenizer } from "./tokenizer/types.ts";
import type { Engine } from "./types.ts";

export interface LoadOptions {
  readonly model: string;
  /** Threads that compute; by default one a core. */
  readonly threads?: number;
  /** Instruction set by name; by default the best that the CPU has. */
  readonly isa?: string;
  /** Where to compute; by default on the CPU. */
  readonly backend?: BackendName;
  /** How the GPU computes matrix products; by default in f32. */
  readonly arithmetic?: Arithmetic;
  /** What keys and values are kept as; by default halves. */
  readonly kvType?: KvType;
  /** Tokens that one sequence may hold; by default the model's own context, at most 4,096. */
  readonly contextLength?: number;
  /** Sequences that run side by side. */
  readonly parallel?: number;
  /** Most bytes that the KV cache may take; it always holds one sequence. By default as many as all sequences need. */
  readonly kvBytes?: number;
  /** Requests that may wait beyond those that run. */
  readonly queue?: number;
  readonly progress?: (done: number, total: number) => void;
  /** Told what went wrong without stopping anything. */
  readonly warn?: (message: string) => void;
  /** Ends the loading, between two tensors, with its reason. */
  readonly signal?: AbortSignal;
}

/** A loaded engine, and what loading it took. */
export interface LoadedEngine {
  readonly engine: Engine;
  readonly backend: AnyBackend;
  /** Why "auto" chose this backend; empty where there was no choice. */
  readonly choice: string;
  readonly loadMs: number;
  /** Bytes that the KV cache takes once it is full. */
  readonly kvBytes: number;
  /** Bytes that recurrent states take once all slots were in use. */
  readonly stateBytes: number;
}

export const DEFAULT_KV_TYPE: KvType = "f16";
const DEFAULT_CONTEXT = 4096;
const DEFAULT_PARALLEL = 4;
const DEFAULT_QUEUE = 256;
/** Rows of a step: enough that prefill is bound by arithmetic, few enough that a decode waits under a second. */
export const MAX_ROWS = 512;
const MIN_LOGIT_ROWS = 16;
/** Snapshots of recurrent state for later requests: two for each sequence that runs, while they take no more than this. */
const SNAPSHOTS_PER_SEQUENCE = 2;
const SNAPSHOT_BYTES = 512 * 2 ** 20;

/**
 * Opens a model file: checks it, packs its weights, compiles its plan. Throws GgufError for a file that is broken or
 * not supported, KernelError where the kernels refuse, GpuError where the GPU does.
 */
export async function loadEngine(options: LoadOptions): Promise<LoadedEngine> {
  const start = performance.now();
  const file = await openGguf(options.model);
  const plan = withKvType(buildPlan(file, await readRopeFactors(file)), options.kvType ?? DEFAULT_KV_TYPE);
  const tokenizer = createTokenizer(file.metadata);
  const chatTemplate = createChatTemplate(file.metadata, tokenizer);
  const size = engineSize(plan, options);
  const { contextLength, limits } = size;
  const progress = (done: number, total: number) => {
    options.signal?.throwIfAborted();
    options.progress?.(done, total);
  };
  const { backend, choice } = await prepareBackend(file, plan, limits, { ...options, progress });
  const model = {
    id: basename(options.model).replace(/\.gguf$/, ""),
    path: options.model,
    architecture: plan.architecture,
    contextLength,
    vocabSize: plan.vocabSize,
    created: Math.floor(Date.now() / 1000),
  };
  return {
    engine: new LlmEngine({ backend, model, tokenizer, chatTemplate, limits }),
    backend,
    choice,
    loadMs: performance.now() - start,
    kvBytes: size.kvBytes,
    stateBytes: size.stateBytes,
  };
}

/**
 * As loadEngine, for a process that lives on: when the engine fails it is loaded again, from the same file and on the same
 * backend, and `note` is told. See ReloadingEngine.
 */
export async function loadReloadingEngine(
  options: LoadOptions,
  note: (message: string) => void,
): Promise<LoadedEngine> {
  const version = await versionOf(options.model);
  const loaded = await loadEngine(options);
  const backend = loaded.backend.info.name as BackendName; // not "auto" again: its answers must stay the same
  const load = async (signal: AbortSignal) => {
    if (await versionOf(options.model) !== version) {
      throw new Error(`Cannot load ${options.model} again: the file has changed since it was loaded first`);
    }
    return (await loadEngine({ ...options, backend, signal, progress: undefined })).engine;
  };
  return { ...loaded, engine: new ReloadingEngine(loaded.engine, { load, note }) };
}

/** Another after every change of the file. */
async function versionOf(path: string): Promise<string> {
  const { size, mtime, ino } = await Deno.stat(path);
  return `${size} ${mtime?.getTime()} ${ino}`;
}

/** How large an engine is: what runs at once, and the KV cache for it. */
export interface EngineSize {
  /** Tokens that one sequence may hold. */
  readonly contextLength: number;
  readonly limits: EngineLimits;
  /** Bytes that the KV cache takes once it is full. */
  readonly kvBytes: number;
  /** Bytes that recurrent states take once all slots were in use. */
  readonly stateBytes: number;
}

/** The size that a model's engine has with these options. */
export function engineSize(
  plan: Plan,
  options: Pick<LoadOptions, "contextLength" | "parallel" | "kvBytes" | "queue">,
): EngineSize {
  const contextLength = Math.min(plan.contextLength, options.contextLength ?? DEFAULT_CONTEXT);
  const parallel = options.parallel ?? DEFAULT_PARALLEL;
  const blockBytes = KV_BLOCK_TOKENS * kvBytesPerToken(plan);
  const blocks = Math.ceil(contextLength / KV_BLOCK_TOKENS);
  const affordable = Math.floor((options.kvBytes ?? Infinity) / blockBytes);
  const kvBlocks = Math.max(blocks, Math.min(parallel * blocks, affordable));
  const stateSlots = countStateSlots(plan, parallel);
  return {
    contextLength,
    limits: {
      stateSlots,
      parallel,
      kvBlocks,
      maxRows: Math.max(MAX_ROWS, parallel),
      maxLogitRows: Math.max(MIN_LOGIT_ROWS, parallel),
      queue: options.queue ?? DEFAULT_QUEUE,
    },
    kvBytes: kvBlocks * blockBytes,
    stateBytes: (stateSlots ?? 0) * stateBytes(plan),
  };
}

/** One for each sequence that runs, and at least one for snapshots; undefined for a model without recurrent layers. */
function countStateSlots(plan: Plan, parallel: number): number | undefined {
  if (plan.recurrent.layers === 0) return undefined;
  const affordable = Math.floor(SNAPSHOT_BYTES / stateBytes(plan));
  return parallel + Math.max(1, Math.min(affordable, SNAPSHOTS_PER_SEQUENCE * parallel));
}

/** The tokenizer of a model file, which may have a vocabulary and nothing else. Throws GgufError. */
export async function loadTokenizer(model: string): Promise<Tokenizer> {
  return createTokenizer((await openGguf(model)).metadata);
}
