import { type LeftOutPart, leftOutParts } from "../architectures/left_out.ts";
import type { KvType } from "../backend/backend.ts";
import { defaultBackend } from "../backend/choose.ts";
import { freeMemory } from "./free_memory.ts";
import { GgufError } from "../gguf/errors.ts";
import { EngineError, worded, type Words } from "../api/errors.ts";
import type { GgufFile, MetadataValue, TensorType } from "../gguf/types.ts";
import { describeModel, type ModelDescription } from "./describe.ts";
import { describeDrafter, type DrafterReport } from "./drafters/report.ts";
import { describeTower, measureTower, type TowerReport } from "./load_tower.ts";
import { totalOf } from "./memory_error.ts";
import type { LoadOptions } from "./options.ts";
import { engineSize, kvTokens } from "./size.ts";
import { type LayerKind, layerKinds } from "../plan/layers.ts";
import { printPlan } from "../plan/print.ts";

export type InspectOptions = Pick<
  LoadOptions,
  "model" | "contextLength" | "parallel" | "kvType" | "activations" | "mmproj" | "draft" | "words"
>;

/** The contents of a model file, and the resources that running it needs. */
export interface ModelReport {
  readonly path: string;
  /** Number of the model's files, and their total bytes. They include a drafter that is part of the plan. */
  readonly files: number;
  readonly fileBytes: number;
  readonly version: number;
  /** Metadata in file order. A long array is replaced by its element count. */
  readonly metadata: ReadonlyMap<string, MetadataValue | { readonly elements: number }>;
  /** Formats of the tensors in these files, by bytes, largest first. */
  readonly formats: readonly FormatReport[];
  /** The resources that the model needs, or the reason why compy cannot compute it. */
  readonly plan: PlanReport | { readonly refusal: string };
  /**
   * The vision tower that the file holds, or the tower beside the model; or the reason why compy cannot use the tower.
   * Undefined without a tower.
   */
  readonly tower: TowerReport | { readonly refusal: string } | undefined;
  /** The drafter that the options name, or the reason why it cannot draft for the model. */
  readonly drafter: DrafterReport | { readonly refusal: string } | undefined;
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
  /** Tokens that the KV cache holds, summed over all sequences. */
  readonly kvTokens: number;
  readonly kvType: KvType;
  readonly layers: readonly LayerKind[];
  /**
   * Resident bytes: the packed weights, the KV cache and recurrent states when full, and a step's activations. They
   * include a drafter that is part of the plan.
   */
  readonly memory: {
    readonly weights: number;
    readonly kv: number;
    readonly states: number;
    readonly scratch: number;
  };
  /** Bytes of weights that a step of one token reads: without the embedding, and with only the chosen experts. */
  readonly tokenWeights: number;
  /** Free bytes for a model and its draft model now; undefined when unknown. */
  readonly free: number | undefined;
  /** Parts of the file that text generation does not use, largest first. */
  readonly leftOut: readonly LeftOutPart[];
  readonly text: string;
  /** GPU dispatches of a one-token step, per layer and in total; or the reason why the GPU cannot compute it. */
  readonly gpu: { readonly layers: readonly number[]; readonly total: number } | { readonly refusal: string };
}

/** Maximum elements of an array to report; longer arrays are reported by their length. */
const MAX_ELEMENTS = 8;

/**
 * Describes a model file without loading its weights. A valid file that cannot run (unknown architecture, no weights)
 * is described too. Throws GgufError for a broken file.
 */
export async function inspectModel(options: InspectOptions): Promise<ModelReport> {
  const { described, tower, refusal } = await describeBoth(options);
  const { file } = described;
  const drafter = refusal === undefined ? await describeDrafter(described, options) : { refusal };
  const metadata = new Map([...file.metadata.entries].map(([key, value]) => [key, shorten(value)]));
  return {
    path: file.path,
    files: file.paths.length,
    fileBytes: file.fileSize,
    version: file.version,
    metadata,
    formats: countFormats(file),
    plan: isTowerFile(file)
      ? { refusal: "it is a vision tower, which a model reads images with" }
      : await describePlan(described, options, drafter),
    tower,
    drafter,
  };
}

interface Described {
  readonly described: ModelDescription;
  readonly tower: ModelReport["tower"];
  /** The reason why the drafter cannot draft for the model. */
  readonly refusal?: string;
}

/**
 * Describes the model with its drafter. If the drafter does not fit, describes only the model and returns the reason.
 */
async function describeBoth(options: InspectOptions): Promise<Described> {
  try {
    const both = await describeWithTower(options);
    // Building the plan checks the drafter's tensors.
    if (both.described.drafter) await both.described.plan();
    return both;
  } catch (error) {
    const refused = error instanceof GgufError || error instanceof EngineError;
    if (options.draft === undefined || !refused) throw error;
    const model = await describeWithTower({ ...options, draft: undefined });
    return { ...model, refusal: worded(error, options.words) };
  }
}

async function describeWithTower(options: InspectOptions): Promise<Described> {
  const described = await describeModel(options);
  return { described, tower: await findTower(described, options) };
}

function isTowerFile({ metadata }: GgufFile): boolean {
  return metadata.getString("general.architecture", "") === "clip";
}

async function findTower(
  described: ModelDescription,
  { mmproj, words }: InspectOptions,
): Promise<ModelReport["tower"]> {
  const backend = defaultBackend();
  let refusal = "";
  try {
    if (isTowerFile(described.file)) return await describeTower(described.file, { backend });
    const warn = (message: string) => refusal ||= message;
    const measured = await measureTower(described, { mmproj, backend, warn });
    described.images = measured?.images;
    if (measured) return measured.report;
  } catch (error) {
    if (!(error instanceof GgufError)) throw error;
    refusal = worded(error, words);
  }
  return refusal === "" ? undefined : { refusal };
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
  described: ModelDescription,
  options: InspectOptions,
  drafter: ModelReport["drafter"],
): Promise<ModelReport["plan"]> {
  try {
    const plan = await described.plan();
    const { all: weights, token: tokenWeights } = await described.weightBytes();
    const free = freeMemory();
    // A smaller model that drafts is not part of the plan, so its memory is subtracted first.
    const apart = drafter && !("refusal" in drafter) && !drafter.joined ? totalOf(drafter.memory) : 0;
    const left = free === undefined ? undefined : Math.max(0, free - apart);
    const wanted = { ...options, drafts: true }; // drafts are also the default when a model is loaded
    const least = totalOf({ ...engineSize(plan, wanted).memory, weights });
    // A model that does not fit in memory is described, not refused.
    const bounds = left === undefined || least > left ? undefined : { free: left, weights };
    const size = engineSize(plan, wanted, bounds);
    const { kv, states, activations } = size.memory;
    return {
      contextLength: size.contextLength,
      parallel: size.limits.parallel,
      kvTokens: kvTokens(plan, size),
      kvType: plan.kv.type,
      layers: layerKinds(plan),
      memory: { weights, kv, states, scratch: activations },
      tokenWeights,
      free,
      leftOut: leftOutParts(described.file, plan),
      text: printPlan(plan),
      gpu: await gpuDispatches(described, options.words),
    };
  } catch (error) {
    if (!(error instanceof GgufError)) throw error;
    return { refusal: worded(error, options.words) };
  }
}

async function gpuDispatches(described: ModelDescription, words?: Words): Promise<PlanReport["gpu"]> {
  described.images = undefined; // the GPU takes no images and computes no drafts
  const plan = await described.plainPlan();
  const [{ countDispatches }, { lower }] = await Promise.all([
    import("../backend/webgpu/dispatch_count.ts"),
    import("../backend/webgpu/lowering.ts"),
  ]);
  try {
    return countDispatches(lower(plan));
  } catch (error) {
    return { refusal: worded(error, words) };
  }
}
