import { buildPlan, poolingOf, readRopeFactors } from "./architectures/registry.ts";
import {
  type Accuracy,
  type ActivationPrecision,
  type Arithmetic,
  type BackendName,
  KV_BLOCK_TOKENS,
  type KvType,
} from "./backend/backend.ts";
import { type AnyBackend, defaultBackend, packedBytes, prepareBackend } from "./backend/choose.ts";
import { MOST_BYTES } from "./backend/wasm/module.ts";
import { createChatForm } from "./chat/chat_form.ts";
import { LlmEngine } from "./engine.ts";
import { fingerprintModel } from "./fingerprint.ts";
import { freeMemory } from "./free_memory.ts";
import type { OpenSource } from "./gguf/byte_source.ts";
import { type PoolingKind, saysPooling } from "./gguf/pooling.ts";
import { openGguf } from "./gguf/reader.ts";
import { shardPaths } from "./gguf/shards.ts";
import type { GgufFile } from "./gguf/types.ts";
import { createGrammars } from "./grammar/grammars.ts";
import { blocksFor, blocksOfSequence } from "./kv_blocks.ts";
import { modelName } from "./models/folder.ts";
import { activeBytes, planCost } from "./plan/cost.ts";
import { encodePlan } from "./plan/encode.ts";
import { canDraft } from "./plan/ops/registry.ts";
import {
  isEncoder,
  kvGroupBytes,
  type Plan,
  pooledColumns,
  stateBytes,
  withContext,
  withKvType,
} from "./plan/plan.ts";
import { createNames, sha256 } from "./prompt_cache/names.ts";
import { type OpenedStore, openStore } from "./prompt_cache/open.ts";
import type { PromptKeeping } from "./prompt_cache/types.ts";
import { type MeasuredDraft, measureDraft, wantsDraftLayer } from "./load_draft.ts";
import type { EngineLimits } from "./scheduler.ts";
import { chooseDrafters, type Speculate } from "./speculation/choose.ts";
import { Speculation } from "./speculation/speculation.ts";
import {
  DEFAULT_CONTEXT,
  type EngineSize,
  engineSize,
  type MemoryBounds,
  type MemoryRoom,
  type SizeOptions,
} from "./size.ts";
import { createChatTemplate } from "./tokenizer/chat_template.ts";
import { createRankTemplate } from "./tokenizer/rank_template.ts";
import { createTokenizer } from "./tokenizer/tokenizer.ts";
import type { Tokenizer } from "./tokenizer/types.ts";
import type { ComingKernels } from "./coming_kernels.ts";
import type { Engine } from "./types.ts";

export { freeMemory } from "./free_memory.ts";
export { MemoryError } from "./memory_error.ts";
export { GgufError } from "./gguf/errors.ts";
export { defaultBackend } from "./backend/choose.ts";
export { blobSource, type OpenSource } from "./gguf/byte_source.ts";
export { checkConstraint } from "./grammar/check.ts";

export interface LoadOptions extends Omit<SizeOptions, "drafts"> {
  readonly model: string;
  /** Opens the model's files; by default as files of this machine. */
  readonly open?: OpenSource;
  /** What requests name it; by default the file's base name without `.gguf`. */
  readonly id?: string;
  /** Threads that compute; by default one a physical core. */
  readonly threads?: number;
  /** Instruction set by name; by default the best that the CPU has. */
  readonly isa?: string;
  /** Where to compute; by default on the CPU. */
  readonly backend?: BackendName;
  /** How the GPU computes matrix products; by default in f32. */
  readonly arithmetic?: Arithmetic;
  /** Whether a GPU may compute in an arithmetic in which the model leaves its gates of accuracy; by default "gated": it may not. */
  readonly accuracy?: Accuracy;
  /** What keys and values are kept as; by default f16. */
  readonly kvType?: KvType;
  /** Where drafts come from; by default "auto". Not on a GPU. */
  readonly speculate?: Speculate;
  /** The file of a smaller model of the same vocabulary that drafts. */
  readonly draft?: string;
  /** What activations are rounded to before products with blocks of weights; by default `fast`. */
  readonly activations?: ActivationPrecision;
  /** How a text's rows become one; by default what the file says, or else the last. */
  readonly pooling?: PoolingKind;
  /** Bytes that may be taken; by default what is free here, where that can be known. Not of a GPU's memory. */
  readonly freeBytes?: number;
  /** What bounds those, in words, where it is not the machine. */
  readonly freeRoom?: MemoryRoom;
  readonly progress?: (done: number, total: number) => void;
  /** Told what went wrong without stopping anything. */
  readonly warn?: (message: string) => void;
  /** Keeps prompts on a disk, on the CPU only. */
  readonly promptCache?: PromptCacheOptions;
  /** Ends the loading, between two tensors, with its reason. */
  readonly signal?: AbortSignal;
  /** Native kernels that an engine goes over to; see loadReloadingEngine. */
  readonly coming?: ComingKernels;
}

/** Where prompts are kept that a later process can go on from. */
export interface PromptCacheOptions {
  readonly folder: string;
  /** Most bytes on the disk. */
  readonly bytes: number;
  /** Write what is computed at once, and not only when it is used a second time. */
  readonly eager?: boolean;
  /** Give up nothing that was written or used so recently. */
  readonly keepMs?: number;
}

/** A loaded engine, and what loading it took. */
export interface LoadedEngine {
  readonly engine: Engine;
  readonly backend: AnyBackend;
  /** Why "auto" chose this backend; empty where there was no choice. */
  readonly choice: string;
  readonly loadMs: number;
  /** Bytes: the packed weights, the KV cache and recurrent states once full, the activations of a step. */
  readonly memory: EngineSize["memory"] & { readonly weights: number };
  /** Tokens that the KV cache holds, of all sequences together. */
  readonly kvTokens: number;
}

export const DEFAULT_KV_TYPE: KvType = "f16";

/** A model whose header was read and checked: what it will take is known, and nothing large was read or made. */
export interface MeasuredModel {
  /** As LoadedEngine. */
  readonly memory: LoadedEngine["memory"];
  readonly contextLength: number;
  readonly backend: BackendName;
  /** Bytes of its packed weights that one token reads. Throws KernelError and WasmError. */
  tokenBytes(): Promise<number>;
  /** Packs its weights and compiles its plan. Throws KernelError and GpuError, or where the file has changed meanwhile. */
  load(signal?: AbortSignal): Promise<LoadedEngine>;
}

/**
 * Opens a model file: checks it, packs its weights, compiles its plan. Throws GgufError for a file that is broken or
 * not supported, MemoryError for what does not fit, KernelError where the kernels refuse, GpuError where the GPU does.
 */
export async function loadEngine(options: LoadOptions): Promise<LoadedEngine> {
  const start = performance.now();
  const loaded = await (await measureModel(options)).load(options.signal);
  return { ...loaded, loadMs: performance.now() - start };
}

/** Reads a model file's header, checks it and says what its engine will take. Throws GgufError and MemoryError. */
export async function measureModel(given: LoadOptions): Promise<MeasuredModel> {
  checkTogether(given);
  const options = { ...given, backend: given.backend ?? defaultBackend(given.warn) };
  const file = await openGguf(options.model, options.open);
  const version = versionOf(options);
  const pooling = poolingOf(file, options.pooling);
  const how = { drafts: wantsDraftLayer(file, options), activations: options.activations };
  const decoder = buildPlan(file, await readRopeFactors(file), pooling, how);
  const plan = withKvType(decoder, options.kvType ?? DEFAULT_KV_TYPE);
  const wanted = options.contextLength ?? 0;
  if (wanted > plan.contextLength) {
    options.warn?.(`A context of ${wanted} tokens is cut to ${plan.contextLength}, the model's own`);
  }
  const weights = await weightBytes(plan, options);
  const drafts = speculates(options);
  const drafting = options.draft === undefined ? undefined : await measureDraft(options.draft, file, {
    ...options,
    contextLength: Math.min(plan.contextLength, options.contextLength ?? DEFAULT_CONTEXT),
  });
  const size = engineSize(plan, { ...options, drafts }, boundsOf(options, weights, drafting));
  return {
    memory: together({ ...size.memory, weights }, drafting),
    contextLength: size.contextLength,
    backend: options.backend,
    tokenBytes: () => tokenWeightBytes(plan),
    load: async (signal) => {
      checkUnchanged(options, version, "now: the file has changed since its header was read");
      const measured = {
        file,
        plan: withContext(plan, size.contextLength),
        pooling: pooling.kind,
        size,
        weights,
        drafting,
      };
      return await withPrompts(measured, { ...options, signal });
    },
  };
}

/** Throws where options contradict each other, whatever the model. */
export function checkTogether(
  { backend, speculate = "auto", draft, promptCache }: Omit<LoadOptions, "model">,
) {
  if (draft !== undefined && speculate !== "auto" && speculate !== "draft") {
    throw new Error(`A model that drafts (--draft) is for --speculate auto or draft (got "${speculate}")`);
  }
  if (draft === undefined && speculate === "draft") {
    throw new Error(
      "--speculate draft needs a smaller model of the same vocabulary: name its file with --draft",
    );
  }
  const drafts = reasonAgainstDrafts({ speculate, draft });
  if (drafts && backend === "webgpu") throw new Error(drafts);
  if (promptCache && backend === "webgpu") throw new Error(NO_PROMPTS_ON_GPU);
}

/** Why what asks for drafts keeps a model from a GPU; undefined where nothing does. */
function reasonAgainstDrafts(
  { speculate = "auto", draft }: Pick<LoadOptions, "speculate" | "draft">,
): string | undefined {
  const asked = speculate !== "auto" && speculate !== "off";
  if (!asked && draft === undefined) return undefined;
  const option = asked ? `--speculate ${speculate}` : "--draft";
  return `${option} is not supported on a GPU: leave it out, or compute with --backend cpu`;
}

const NO_PROMPTS_ON_GPU =
  "Prompts are kept on a disk with the CPU backend only: leave out --cache-disk, or compute " +
  "with --backend cpu";

/** What is asked for that the GPU does not do, whatever its plan; undefined where there is nothing. */
function reasonAgainstGpu(
  file: GgufFile,
  plan: Plan,
  options: LoadOptions,
): string | undefined {
  const { pooling, promptCache } = options;
  const vectors = pooling !== undefined || saysPooling(file) || isEncoder(plan);
  if (vectors) return "The GPU computes no embeddings and ranks nothing yet: use --backend cpu";
  return promptCache ? NO_PROMPTS_ON_GPU : reasonAgainstDrafts(options);
}

/** Whether steps may carry drafts: of a backend that is not chosen yet too. */
function speculates({ backend, speculate }: LoadOptions): boolean {
  return speculate !== "off" && backend !== "webgpu";
}

/** The memory of a model, and of one that drafts for it. */
function together(
  memory: LoadedEngine["memory"],
  drafting: MeasuredDraft | undefined,
): LoadedEngine["memory"] {
  if (!drafting) return memory;
  const { weights, activations, states, kv } = drafting.memory;
  return {
    weights: memory.weights + weights,
    activations: memory.activations + activations,
    states: memory.states + states,
    kv: memory.kv + kv,
  };
}

const WASM_ROOM: MemoryRoom = {
  allows: "WebAssembly's 32-bit memory has room for",
  advice: "use native kernels",
};

/** What the model has to keep to; undefined where that is unknown. */
function boundsOf(
  { backend, freeBytes, freeRoom }: LoadOptions,
  weights: number,
  drafting: MeasuredDraft | undefined,
): MemoryBounds | undefined {
  if (backend === "webgpu") return undefined;
  const all = freeBytes ?? freeMemory();
  const drafts = Object.values(drafting?.memory ?? {}).reduce((sum, bytes) => sum + bytes, 0);
  const free = all === undefined ? undefined : all - drafts;
  const within = backend === "wasm" && MOST_BYTES < (free ?? Infinity);
  if (within) return { free: MOST_BYTES, weights, room: WASM_ROOM };
  return free === undefined ? undefined : { free, weights, room: freeRoom };
}

/** Opens the store of prompts before anything large is read. */
async function withPrompts(measured: Measured, options: LoadOptions): Promise<LoadedEngine> {
  const keeps = options.promptCache && !isEncoder(measured.plan); // of an encoder's texts nothing is used again
  const opened = keeps ? await openPromptStore(options.promptCache!, options) : undefined;
  try {
    return await loadMeasured(measured, options, opened);
  } catch (error) {
    await opened?.close();
    throw error;
  }
}

interface Measured {
  readonly file: GgufFile;
  readonly plan: Plan;
  readonly pooling: PoolingKind;
  readonly size: EngineSize;
  readonly weights: number;
  readonly drafting: MeasuredDraft | undefined;
}

async function loadMeasured(
  { file, plan, pooling, size: { contextLength, limits, memory }, weights, drafting }: Measured,
  options: LoadOptions,
  opened: OpenedStore | undefined,
): Promise<LoadedEngine> {
  const start = performance.now();
  const tokenizer = createTokenizer(file.metadata);
  const chatTemplate = createChatTemplate(file.metadata, tokenizer);
  const progress = (done: number, total: number) => {
    options.signal?.throwIfAborted();
    options.progress?.(done, total);
  };
  const notOnGpu = reasonAgainstGpu(file, plan, options);
  const { backend, choice } = await prepareBackend(file, plan, limits, { ...options, notOnGpu, progress });
  const model = {
    id: options.id ?? modelName(options.model),
    path: options.model,
    architecture: plan.architecture,
    contextLength,
    vocabSize: plan.vocabSize,
    created: Math.floor(Date.now() / 1000),
    backend: backend.info.name as BackendName,
    pooled: backend.info.name !== "webgpu"
      ? { kind: pooling, size: pooledColumns(plan), encoder: isEncoder(plan) }
      : undefined,
  };
  const chatForm = createChatForm(chatTemplate, tokenizer);
  const rankTemplate = createRankTemplate(file.metadata, tokenizer);
  const grammars = createGrammars(tokenizer, chatForm.markers);
  const keeping = opened && await promptKeeping(options, { plan, backend, opened }).catch((error) => {
    backend.close();
    throw error;
  });
  const speculation = await openSpeculation(plan, backend, drafting, options).catch((error) => {
    backend.close();
    throw error;
  });
  return {
    engine: new LlmEngine({
      backend,
      model,
      tokenizer,
      chatTemplate,
      chatForm,
      rankTemplate,
      grammars,
      limits,
      keeping,
      speculation,
    }),
    backend,
    choice,
    loadMs: performance.now() - start,
    memory: together({ ...memory, weights }, drafting),
    kvTokens: isEncoder(plan) ? 0 : tokensOf(limits, contextLength),
  };
}

/** What drafts; undefined where nothing does. */
async function openSpeculation(
  plan: Plan,
  backend: AnyBackend,
  drafting: MeasuredDraft | undefined,
  { speculate = "auto", signal }: LoadOptions,
): Promise<Speculation | undefined> {
  if (speculate === "off" || isEncoder(plan)) return undefined;
  // A backend that takes several steps at once draws their tokens itself.
  if ("decode" in backend) return undefined;
  return new Speculation(
    chooseDrafters(speculate, canDraft(plan) ? backend : undefined, await drafting?.load(signal)),
  );
}

/** Opens the folder. Throws where it cannot be had. */
function openPromptStore(
  { folder, bytes, keepMs }: PromptCacheOptions,
  { warn }: LoadOptions,
): Promise<OpenedStore> {
  return openStore(folder, { limit: bytes, keepMs, warn: (message) => warn?.(`${message} (${folder})`) });
}

/** How an engine keeps its prompts: under names of all that their bytes depend on. */
async function promptKeeping(
  { model, open, promptCache }: LoadOptions,
  { plan, backend, opened }: Pick<Measured, "plan"> & { backend: AnyBackend; opened: OpenedStore },
): Promise<PromptKeeping> {
  if (!("kernelsDigest" in backend)) {
    throw new Error(NO_PROMPTS_ON_GPU);
  }
  const size = { kvBlocks: 1, stateSlots: 1, maxRows: 1, maxLogitRows: 1 };
  const { store, close } = opened;
  const identity = {
    weights: (await fingerprintModel(model, open)).weights,
    plan: sha256(encodePlan(plan, size)),
    kernels: await backend.kernelsDigest(),
    isa: backend.info.isa,
  };
  return {
    store,
    names: createNames(identity, store.secret),
    groupBytes: kvGroupBytes(plan),
    stateBytes: stateBytes(plan),
    eager: promptCache?.eager ?? false,
    close,
  };
}

/** Tokens that the KV cache holds: of sequences as long as can be, where layers see windows. */
function tokensOf(
  { kvBlocks, kvWindows: windows = [], maxRows }: EngineLimits,
  contextLength: number,
): number {
  const share = blocksFor(contextLength) / blocksOfSequence({ windows, maxRows }, contextLength);
  return Math.floor(kvBlocks * share) * KV_BLOCK_TOKENS;
}

/** Throws where the file is another than that of which the version was taken. */
export function checkUnchanged(options: LoadOptions, version: string, otherwise: string): void {
  if (versionOf(options) !== version) throw new Error(`Cannot load ${options.model} ${otherwise}`);
}

/** What is not a file of this machine is taken not to change. */
export function versionOf({ model, open }: LoadOptions): string {
  return open ? "" : fileVersion(model);
}

/** Another after every change of a model's file, or of any of those that it was split into. */
export function fileVersion(path: string): string {
  const versions = shardPaths(path).map((file) => {
    try {
      const { size, mtimeMs, ino } = process.getBuiltinModule("node:fs").statSync(file);
      return `${size} ${mtimeMs} ${ino}`;
    } catch {
      return "missing"; // as the reader will say, in more words
    }
  });
  return versions.join(", ");
}

/** Bytes of the weights as the backend holds them; on a GPU about as in the file. */
export async function weightBytes(
  plan: Plan,
  options: Pick<LoadOptions, "backend" | "isa">,
): Promise<number> {
  const bytes = options.backend === "webgpu"
    ? plan.tensors.map(({ info }) => info.byteLength)
    : await packedBytes(plan, options);
  return bytes.reduce((sum, bytes) => sum + bytes, 0);
}

/** Bytes of the CPU's packed weights that a step of one token reads for its logits: of experts, those that it chooses. */
export async function tokenWeightBytes(plan: Plan): Promise<number> {
  const bytes = await packedBytes(plan, {});
  return activeBytes(planCost(plan, (tensor) => bytes[plan.tensors.indexOf(tensor)]));
}

/** The tokenizer of a model file, which may have a vocabulary and nothing else. Throws GgufError. */
export async function loadTokenizer(model: string): Promise<Tokenizer> {
  return createTokenizer((await openGguf(model)).metadata);
}
