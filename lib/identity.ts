import { fingerprintFile, fingerprintModel, fingerprintTemplate } from "../engine/load/fingerprint.ts";
import { describeModel } from "../engine/load/describe.ts";
import { defaultBackend, type GivenTemplate } from "../engine/load/load.ts";
import { measureTower } from "../engine/load/load_tower.ts";
import { identityContext } from "../engine/load/size.ts";
import { modelName } from "../engine/models/folder.ts";
import {
  type ActivationPrecision,
  type AdapterInfo,
  type Arithmetic,
  ARITHMETICS,
  type BackendName,
  DEFAULT_KV_TYPE,
  type KvType,
  type PoolingKind,
} from "../engine/mod.ts";
import type { ModelIdentity } from "../jobs/model_identity.ts";

/** Settings that affect a model's answers. */
export interface AnsweringModel {
  readonly path: string;
  /** The requested context length; by default the model's. */
  readonly contextLength?: number;
  /** The backend; by default the native CPU kernels, or WebAssembly without them. */
  readonly backend?: Exclude<BackendName, "auto">;
  readonly arithmetic?: Arithmetic;
  readonly kvType?: KvType;
  readonly activations?: ActivationPrecision;
  /** Pooling that overrides the file's. */
  readonly pooling?: PoolingKind;
  /** Chat template that overrides the file's. */
  readonly chatTemplate?: GivenTemplate;
  readonly lora?: readonly string[];
  /** File of the vision tower; by default one beside the model that fits it. */
  readonly mmproj?: string;
}

/**
 * Returns the identity of a model and its settings, on which its answers depend. A job resumes, and its workers
 * compute, only with an equal identity. The processor affects rounding but is not included, so that a batch can end on
 * another machine. Reads the header and some pages of the file. Throws GgufError for a model that compy cannot run.
 */
export async function identifyModel(model: AnsweringModel): Promise<ModelIdentity> {
  const { path, pooling, activations, chatTemplate: given, mmproj } = model;
  const { backend = defaultBackend(), arithmetic = ARITHMETICS[0], kvType = DEFAULT_KV_TYPE } = model;
  const described = await describeModel({ ...model, model: path });
  const { weights, chatTemplate } = await fingerprintModel(described.file);
  const tower = await measureTower(described, { mmproj, backend });
  return {
    "model": modelName(path),
    "weights": weights,
    ...(tower ? { "vision tower": await fingerprintFile(tower.report.path) } : {}),
    "chat template": given ? fingerprintTemplate(given.source) : chatTemplate,
    "backend": backend === "webgpu" ? `${backend}, ${arithmetic}` : backend,
    "KV cache": kvType,
    "context length": identityContext(await described.plan(), model.contextLength),
    ...(activations === "fine" ? { activations } : {}),
    ...(pooling === undefined ? {} : { "pooling": pooling }),
    ...(described.adapters ? { "adapters": adaptersInWords(described.adapters.infos) } : {}),
  };
}

/** Names the adapters with their scales and a part of their fingerprints. */
function adaptersInWords(adapters: readonly AdapterInfo[]): string {
  return adapters.map(({ name, scale, fingerprint }) => `${name} x ${scale} (${fingerprint.slice(0, 16)})`)
    .join(", ");
}
