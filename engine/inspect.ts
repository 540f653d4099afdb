import { type LeftOutPart, leftOutParts } from "./architectures/left_out.ts";
import { buildPlan, readRopeFactors } from "./architectures/registry.ts";
import type { KvType } from "./backend/backend.ts";
import { freeMemory } from "./free_memory.ts";
import { GgufError } from "./gguf/errors.ts";
import { openGguf } from "./gguf/reader.ts";
import type { GgufFile, MetadataValue, TensorType } from "./gguf/types.ts";
import { DEFAULT_KV_TYPE, type LoadOptions, tokenWeightBytes, weightBytes } from "./load.ts";
import { wantsDraftLayer } from "./load_draft.ts";
import { engineSize } from "./size.ts";
import { countDispatches } from "./backend/webgpu/dispatch_count.ts";
import { lower } from "./backend/webgpu/lowering.ts";
import { type LayerKind, layerKinds } from "./plan/layers.ts";
import { type Plan, withKvType } from "./plan/plan.ts";
import { printPlan } from "./plan/print.ts";

export type InspectOptions = Pick<
  LoadOptions,
  "model" | "contextLength" | "parallel" | "kvType" | "activations"
>;

/** What a model file holds, and what running it takes. */
export interface ModelReport {
  readonly path: string;
  /** In how many files the model is, and their bytes. */
  readonly files: number;
  readonly fileBytes: number;
  readonly version: number;
  /** In the file's order; of an array its element count only. */
  readonly metadata: ReadonlyMap<string, MetadataValue | { readonly elements: number }>;
  /** Largest share of the file first. */
  readonly formats: readonly FormatReport[];
  /** What computing the model takes; the reason where compy cannot. */
  readonly plan: PlanReport | { readonly refusal: string };
}

export interface FormatReport {
  readonly type: TensorType;
  readonly tensors: number;
  readonly elements: number;
  readonly bytes: number;
}

export interface PlanReport {
  readonly contextLength: number;
  readonly parallel: number;
  readonly kvType: KvType;
  readonly layers: readonly LayerKind[];
  /** Bytes, resident: the packed weights, the KV cache and recurrent states once full, the activations of a step. */
  readonly memory: {
    readonly weights: number;
    readonly kv: number;
    readonly states: number;
    readonly scratch: number;
  };
  /** Of the weights' bytes, those that a token is computed from: all but the embedding, and few of many experts. */
  readonly tokenWeights: number;
  /** Bytes that may be taken here now; undefined where nobody can say. */
  readonly free: number | undefined;
  /** Parts of the file that texts are computed without, largest first. */
  readonly leftOut: readonly LeftOutPart[];
  readonly text: string;
  /** Dispatches of one token's step on a GPU: of each layer, and of all layers and the rest; the reason where it cannot. */
  readonly gpu: { readonly layers: readonly number[]; readonly total: number } | { readonly refusal: string };
}

/** Elements above which an array is given by its length. */
const MAX_ELEMENTS = 8;

/**
 * Describes a model file without loading its weights. Throws GgufError for a broken file; one that is sound but
 * cannot be run (another architecture, no weights) is described all the same.
 */
export async function inspectModel(
  options: InspectOptions,
): Promise<ModelReport> {
  const file = await openGguf(options.model);
  const metadata = new Map([...file.metadata.entries].map(([key, value]) => [key, shorten(value)]));
  return {
    path: file.path,
    files: file.paths.length,
    fileBytes: file.fileSize,
    version: file.version,
    metadata,
    formats: countFormats(file),
    plan: await describePlan(file, options),
  };
}

function shorten(value: MetadataValue): MetadataValue | { elements: number } {
  return typeof value === "object" && value.length > MAX_ELEMENTS ? { elements: value.length } : value;
}

function countFormats(file: GgufFile): FormatReport[] {
  const formats = new Map<TensorType, FormatReport>();
  for (const { type, shape, byteLength } of file.tensors.values()) {
    const { tensors, elements, bytes } = formats.get(type) ?? { tensors: 0, elements: 0, bytes: 0 };
    const size = shape.reduce((product, n) => product * n, 1);
    formats.set(type, { type, tensors: tensors + 1, elements: elements + size, bytes: bytes + byteLength });
  }
  return [...formats.values()].sort((a, b) => b.bytes - a.bytes);
}

async function describePlan(
  file: GgufFile,
  options: InspectOptions,
): Promise<ModelReport["plan"]> {
  try {
    const kvType = options.kvType ?? DEFAULT_KV_TYPE;
    const factors = await readRopeFactors(file);
    const planOf = (drafts: boolean) => {
      const { activations } = options;
      return withKvType(buildPlan(file, factors, undefined, { drafts, activations }), kvType);
    };
    const plan = planOf(wantsDraftLayer(file, {}));
    const { contextLength, limits, memory: { kv, states, activations } } = engineSize(plan, {
      ...options,
      drafts: true, // as a model is loaded by default
    });
    const memory = { weights: await weightBytes(plan, {}), kv, states, scratch: activations };
    return {
      contextLength,
      parallel: limits.parallel,
      kvType,
      layers: layerKinds(plan),
      memory,
      tokenWeights: await tokenWeightBytes(plan),
      free: freeMemory(),
      leftOut: leftOutParts(file, plan),
      text: printPlan(plan),
      gpu: gpuDispatches(planOf(false)), // it does not draft
    };
  } catch (error) {
    if (!(error instanceof GgufError)) throw error;
    return { refusal: error.message };
  }
}

function gpuDispatches(plan: Plan): PlanReport["gpu"] {
  try {
    return countDispatches(lower(plan));
  } catch (error) {
    return { refusal: error instanceof Error ? error.message : String(error) };
  }
}
