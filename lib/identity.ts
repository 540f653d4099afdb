import { fingerprintModel } from "../engine/load/fingerprint.ts";
import { DEFAULT_KV_TYPE, defaultBackend } from "../engine/load/load.ts";
import { modelName } from "../engine/models/folder.ts";
import {
  type ActivationPrecision,
  type Arithmetic,
  ARITHMETICS,
  type BackendName,
  type KvType,
  type PoolingKind,
} from "../engine/mod.ts";
import type { ModelIdentity } from "../jobs/model_identity.ts";

/** What the answers of a model depend on besides the requests, and besides its file, at `path`. */
export interface AnsweringModel {
  readonly path: string;
  readonly contextLength: number;
  /** Where it is computed; by default on the CPU, natively where that can be. */
  readonly backend?: Exclude<BackendName, "auto">;
  readonly arithmetic?: Arithmetic;
  readonly kvType?: KvType;
  readonly activations?: ActivationPrecision;
  /** Only where it is not left to the file. */
  readonly pooling?: PoolingKind;
}

/**
 * What the answers of a model depend on besides the requests. A job and its workers resume and compute with the same
 * only. Not part of it is the processor, which decides how sums are rounded: a batch may end on another machine than
 * that on which it began.
 */
export async function identifyModel(model: AnsweringModel): Promise<ModelIdentity> {
  const { path, contextLength, pooling, activations } = model;
  const { backend = defaultBackend(), arithmetic = ARITHMETICS[0], kvType = DEFAULT_KV_TYPE } = model;
  const { weights, chatTemplate } = await fingerprintModel(path);
  return {
    "model": modelName(path),
    "weights": weights,
    "chat template": chatTemplate,
    "backend": backend === "webgpu" ? `${backend}, ${arithmetic}` : backend,
    "KV cache": kvType,
    "context length": contextLength,
    ...(activations === "fine" ? { activations } : {}),
    ...(pooling === undefined ? {} : { "pooling": pooling }),
  };
}
