import { adapterChoices } from "./adapters/adapter_choice.ts";
import type { BackendName } from "../backend/backend.ts";
import { type AnyBackend, defaultBackend, prepareBackend } from "../backend/choose.ts";
import { MOST_BYTES } from "../backend/wasm/module.ts";
import { createChatForm } from "../chat/chat_form.ts";
import { LlmEngine } from "../loop/engine.ts";
import { fingerprintModel } from "./fingerprint.ts";
import { freeMemory } from "./free_memory.ts";
import { shardPaths } from "../gguf/shards.ts";
import { createGrammars } from "../grammar/grammars.ts";
import { describeLoosened } from "../grammar/loosening.ts";
import type { LoosenedSchema } from "../grammar/types.ts";
import { modelName } from "../models/folder.ts";
import { encodePlan } from "../plan/encode.ts";
import { canDraft } from "../plan/ops/registry.ts";
import { isEncoder, kvGroupBytes, type Plan, pooledColumns, stateBytes, withContext } from "../plan/plan.ts";
import { createNames, sha256 } from "../cache/disk/names.ts";
import { type OpenedStore, openStore } from "../cache/disk/open.ts";
import type { PromptDisk } from "../cache/disk/types.ts";
import { describeModel, type ModelDescription } from "./describe.ts";
import { type MeasuredDraft, measureDraft } from "./load_draft.ts";
import { type MeasuredTower, measureTower } from "./load_tower.ts";
import { chooseDrafters, layerDrafter } from "../speculation/choose.ts";
import { Speculation } from "../speculation/speculation.ts";
import {
  type ContextCut,
  type EngineSize,
  engineSize,
  identityContext,
  kvTokens,
  usualContext,
} from "./size.ts";
import {
  type MemoryBounds,
  MemoryError,
  type MemoryNeeds,
  type MemoryRoom,
  totalOf,
} from "./memory_error.ts";
import { createChatTemplate } from "../chat/template/chat_template.ts";
import { createRankTemplate } from "../chat/template/rank_template.ts";
import type { LoadOptions, PromptCacheOptions } from "./options.ts";
import type { Engine, ModelInfo } from "../api/engine.ts";
import { EngineError } from "../api/errors.ts";
import { checkTogether, NO_PROMPTS_ON_GPU, reasonAgainstGpu } from "./option_errors.ts";

export { freeMemory } from "./free_memory.ts";
export { checkTogether } from "./option_errors.ts";
export { MemoryError } from "./memory_error.ts";
export { GgufError } from "../gguf/errors.ts";
export { defaultBackend } from "../backend/choose.ts";
export { blobSource, type OpenSource } from "../gguf/byte_source.ts";
export { checkConstraint } from "../grammar/check.ts";
export { checkTemplate, type GivenTemplate } from "../chat/template/chat_template.ts";

/** A loaded engine, and the resources that it occupies. */
export interface LoadedEngine {
  readonly engine: Engine;
  readonly backend: AnyBackend;
  /** The reason why "auto" chose this backend; empty for other settings. */
  readonly choice: string;
  /** Number of NUMA nodes that each have an engine; undefined for one engine. */
  readonly nodes?: number;
  readonly loadMs: number;
  /** Resident bytes: the packed weights, the KV cache and recurrent states when full, and a step's activations. */
  readonly memory: EngineSize["memory"] & { readonly weights: number };
  /** The figures that made the default context shorter than the model's own; undefined if it is not. */
  readonly cut?: ContextCut;
  /** Tokens that the KV cache holds, summed over all sequences. */
  readonly kvTokens: number;
}

/** A model with a checked header and known memory need, before its weights are read and large memory is allocated. */
export interface MeasuredModel {
  /** Memory need by part, as in LoadedEngine. */
  readonly memory: LoadedEngine["memory"];
  /** Maximum tokens of one sequence, as in ModelInfo. */
  readonly contextLength: number;
  readonly backend: BackendName;
  /** Bytes of weights that a step of one token reads. */
  readonly tokenBytes: number;
  /** Packs the weights and compiles the plan. Throws KernelError or GpuError, or Error when the file has changed. */
  load(signal?: AbortSignal): Promise<LoadedEngine>;
}

/**
 * Loads a model file: checks it, packs its weights and compiles its plan. Throws GgufError for a broken or
 * unsupported file, MemoryError when it does not fit, KernelError or GpuError when the kernels or the GPU refuse it.
 */
export async function loadEngine(options: LoadOptions): Promise<LoadedEngine> {
  const start = performance.now();
  const loaded = await (await measureModel(options)).load(options.signal);
  return { ...loaded, loadMs: performance.now() - start };
}

/**
 * Reads a model file's header, checks it and returns what its engine will need. A model that only fits without its
 * draft layer gets none, unless the options ask for it. Throws GgufError and MemoryError.
 */
export async function measureModel(given: LoadOptions): Promise<MeasuredModel> {
  checkTogether(given);
  const options = { ...given, backend: given.backend ?? defaultBackend(given.warn) };
  try {
    return await measure(options);
  } catch (error) {
    if (!(error instanceof MemoryError) || (options.speculate ?? "auto") !== "auto") throw error;
    return await measure({ ...options, speculate: "lookup" });
  }
}

async function measure(
  options: LoadOptions & Required<Pick<LoadOptions, "backend">>,
): Promise<MeasuredModel> {
  const described = await describeModel(options);
  const version = versionOf(options);
  const tower = await measureTower(described, options);
  described.images = tower?.images;
  const plan = await described.plan();
  const wanted = options.contextLength ?? 0;
  if (wanted > plan.contextLength) {
    options.warn?.(`A context of ${wanted} tokens is cut to ${plan.contextLength}, the model's own`);
  }
  const { all: weights, token: tokenBytes } = await described.weightBytes();
  // Steps may carry drafts even if the backend is not chosen yet.
  const drafts = options.speculate !== "off" && options.backend !== "webgpu";
  const contextLength = usualContext(plan, options.contextLength);
  const drafting = options.draft === undefined || described.drafter
    ? undefined
    : await measureDraft(options.draft, described, { ...options, contextLength });
  const others = [drafting?.memory, tower?.memory].filter((memory) => memory !== undefined);
  // A GPU allocates all of the KV cache at once, and WebAssembly's memory holds little.
  const spareBytes = options.backend === "cpu" ? options.spareBytes : 0;
  const size = engineSize(plan, { ...options, drafts, spareBytes }, boundsOf(options, weights, others));
  const memory = together([{ ...size.memory, weights }, ...others]);
  return {
    memory,
    contextLength: size.contextLength,
    backend: options.backend,
    tokenBytes,
    load: async (signal) => {
      checkUnchanged(options, version, "now: the file has changed since its header was read");
      const measured = {
        described,
        plan: withContext(plan, options.contextLength ?? plan.contextLength),
        size,
        memory,
        drafting,
        tower,
      };
      return await withPrompts(measured, { ...options, signal });
    },
  };
}

/** Returns the memory of a model, its draft model and its vision tower together. */
function together(parts: readonly MemoryNeeds[]): LoadedEngine["memory"] {
  const sum = (name: keyof LoadedEngine["memory"]) => parts.reduce((total, part) => total + part[name], 0);
  return { weights: sum("weights"), activations: sum("activations"), states: sum("states"), kv: sum("kv") };
}

const WASM_ROOM: MemoryRoom = {
  allows: ["WebAssembly's 32-bit memory has room for"],
  advice: ["use native kernels"],
};

/** Returns the memory bounds of the model; undefined if they are unknown. */
function boundsOf(
  { backend, freeBytes, freeRoom }: LoadOptions,
  weights: number,
  others: readonly MemoryNeeds[],
): MemoryBounds | undefined {
  if (backend === "webgpu") return undefined;
  const all = freeBytes ?? freeMemory();
  const free = all === undefined ? undefined : others.reduce((left, memory) => left - totalOf(memory), all);
  const within = backend === "wasm" && MOST_BYTES < (free ?? Infinity);
  if (within) return { free: MOST_BYTES, weights, room: WASM_ROOM };
  return free === undefined ? undefined : { free, weights, room: freeRoom };
}

/** Loads the model with a prompt store. The store is opened first, so that its errors appear before large reads. */
async function withPrompts(measured: Measured, options: LoadOptions): Promise<LoadedEngine> {
  const keeps = options.promptCache && !isEncoder(measured.plan); // an encoder never reuses the cache of a text
  const opened = keeps ? await openPromptStore(options.promptCache!, options) : undefined;
  try {
    return await loadMeasured(measured, options, opened);
  } catch (error) {
    await opened?.close();
    throw error;
  }
}

interface Measured {
  readonly described: ModelDescription;
  readonly plan: Plan;
  readonly size: EngineSize;
  readonly memory: LoadedEngine["memory"];
  readonly drafting: MeasuredDraft | undefined;
  readonly tower: MeasuredTower | undefined;
}

interface Closeable {
  close(): void;
}

async function loadMeasured(
  measured: Measured,
  options: LoadOptions,
  opened: OpenedStore | undefined,
): Promise<LoadedEngine> {
  const start = performance.now();
  const { described, plan, size, memory, tower: measuredTower } = measured;
  const { cut, limits } = size;
  const { file, tokenizer } = described;
  const chatTemplate = createChatTemplate(file.metadata, tokenizer, options.chatTemplate);
  const progress = (done: number, total: number) => {
    options.signal?.throwIfAborted();
    options.progress?.(done, total);
  };
  const notOnGpu = reasonAgainstGpu(file, plan, options);
  const { backend, choice } = await prepareBackend(file, plan, limits, { ...options, notOnGpu, progress });
  const model = infoOf(measured, options, backend);
  const chatForm = createChatForm(chatTemplate, tokenizer);
  const rankTemplate = createRankTemplate(file.metadata, tokenizer);
  const onLoosened = (schema: LoosenedSchema) => options.warn?.(describeLoosened(schema));
  const grammars = createGrammars(tokenizer, chatForm.markers, { onLoosened });
  const promptDisk = opened &&
    await orClose(
      openPromptDisk(options, { described, plan, tower: measuredTower, backend, opened }),
      backend,
    );
  const speculation = await orClose(openSpeculation(measured, backend, options), backend);
  const tower = measuredTower && await orClose(measuredTower.load(options.signal), speculation, backend);
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
      promptDisk,
      tower,
      speculation,
    }),
    backend,
    choice,
    loadMs: performance.now() - start,
    memory,
    cut,
    kvTokens: kvTokens(plan, size),
  };
}

function infoOf(
  { described, plan, size, tower }: Measured,
  options: LoadOptions,
  backend: AnyBackend,
): ModelInfo {
  return {
    id: options.id ?? modelName(options.model),
    path: options.model,
    architecture: plan.architecture,
    contextLength: size.contextLength,
    trainedContext: plan.contextLength,
    identityContext: identityContext(plan, options.contextLength),
    vocabSize: plan.vocabSize,
    created: Math.floor(Date.now() / 1000),
    backend: backend.info.name as BackendName,
    images: tower !== undefined,
    imageText: tower?.promptText,
    pooled: backend.abilities.pools
      ? {
        kind: described.pooling.kind,
        size: pooledColumns(plan),
        encoder: isEncoder(plan),
        labels: described.pooling.names,
      }
      : undefined,
    adapters: described.adapters?.infos,
  };
}

/** Returns the promise's value. If the promise fails, closes what is open already. */
async function orClose<T>(opening: Promise<T>, ...open: readonly (Closeable | undefined)[]): Promise<T> {
  try {
    return await opening;
  } catch (error) {
    for (const one of open) one?.close();
    throw error;
  }
}

/** Returns the draft proposer; undefined if nothing drafts. */
async function openSpeculation(
  { plan, described, drafting, size }: Pick<Measured, "plan" | "described" | "drafting" | "size">,
  backend: AnyBackend,
  { speculate = "auto", signal }: LoadOptions,
): Promise<Speculation | undefined> {
  if (speculate === "off" || isEncoder(plan)) return undefined;
  // Drafts cannot be verified if the backend draws the tokens itself.
  if (backend.abilities.draws) return undefined;
  const layer = canDraft(plan) ? layerDrafter(backend, size.limits, described.drafter) : undefined;
  return new Speculation(chooseDrafters(speculate, layer ?? await drafting?.load(signal)));
}

/** Opens the prompt store. Rejects if its folder cannot be opened. */
function openPromptStore(
  { folder, bytes, keepMs }: PromptCacheOptions,
  { warn }: LoadOptions,
): Promise<OpenedStore> {
  return openStore(folder, { limit: bytes, keepMs, warn: (message) => warn?.(`${message} (${folder})`) });
}

/**
 * Returns how the engine stores prompts. The names of stored parts depend on everything that determines their bytes.
 */
async function openPromptDisk(
  { promptCache }: LoadOptions,
  { described, plan, tower, backend, opened }: Pick<Measured, "described" | "plan" | "tower"> & {
    backend: AnyBackend;
    opened: OpenedStore;
  },
): Promise<PromptDisk> {
  const { copies } = backend.abilities;
  if (!copies) throw new EngineError("not_supported", NO_PROMPTS_ON_GPU);
  const size = { kvBlocks: 1, stateSlots: 1, maxRows: 1, maxLogitRows: 1 };
  const { store, close } = opened;
  const identity = {
    weights: (await fingerprintModel(described.file)).weights,
    plan: sha256(encodePlan(plan, size)),
    kernels: await copies.kernelsDigest(),
    isa: backend.info.isa,
    tower: await tower?.digest(),
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

/** Throws an Error if the file has changed since `version` was taken. */
export function checkUnchanged(options: LoadOptions, version: string, otherwise: string): void {
  if (versionOf(options) !== version) throw new Error(`Cannot load ${options.model} ${otherwise}`);
}

/** Returns the version of the file and its adapters; always "" for a file that is not on this machine, which is assumed not to change. */
export function versionOf({ model, open, lora }: LoadOptions): string {
  const files = [model, ...adapterChoices(lora).map(({ path }) => path)];
  return open ? "" : files.map(fileVersion).join(", ");
}

/** Returns a version that changes whenever the model's file, or any of its shards, changes. */
export function fileVersion(path: string): string {
  const versions = shardPaths(path).map((file) => {
    try {
      const { size, mtimeMs, ino } = process.getBuiltinModule("node:fs").statSync(file);
      return `${size} ${mtimeMs} ${ino}`;
    } catch {
      return "missing"; // the reader reports a missing file with more detail
    }
  });
  return versions.join(", ");
}
