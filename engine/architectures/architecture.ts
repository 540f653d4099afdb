import type { ArchitectureKeys } from "../gguf/hparams/architecture_keys.ts";
import type { Allowed, Hparams } from "../gguf/hparams/hparams.ts";
import type { ModelPooling, PoolingKind } from "../gguf/hparams/pooling.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import type { LogitOptions } from "../plan/ops/candidates.ts";
import type { Rope } from "./parts/rope.ts";

/** Returns the full name of a layer's tensor, without `.weight`, for its short name. */
export type TensorName = (tensor: string) => string;

/** Part of the graph after the last layer. */
export interface Ending {
  /** The norm after the last layer; by default "output_norm". */
  readonly norm?: string;
  /** Whether the norm after the last layer is a LayerNorm; by default the architecture's kind of norm. */
  readonly layerNorm?: boolean;
  /** Whether the model is an encoder: it returns rows of whole texts and has neither logits nor an output matrix. */
  readonly encoder?: boolean;
  /** How logits are scaled or bounded; by default not at all. */
  readonly logits?: LogitOptions;
}

/**
 * One value of `general.architecture`. A file in this folder exports one architecture or a few similar ones;
 * registry.ts lists them all.
 */
export interface Architecture {
  /** Optional features of a decoder that files may use. Files with other features are refused. */
  readonly allows?: Allowed;
  /** Whether the decoder takes rows of images, and their positions: in a grid (M-RoPE in turns), or one after the other. */
  readonly images?: "grid" | "line";
  /** By default: "output_norm", then logits. */
  readonly ending?: (keys: ArchitectureKeys, h: Hparams) => Ending;
  /**
   * Builds the layers of a file with validated hyper-parameters. Returns the last layer's rows, without the final norm.
   */
  readonly build: (b: PlanBuilder, h: Hparams, rope: Rope) => Value;
  /** Whether `build` adds the file's extra layer that drafts tokens, for a builder that `drafts`. */
  readonly drafts?: boolean;
  /** Default pooling for whole texts when the file has none; by default their last row. */
  readonly pooling?: PoolingKind;
  /** Pools the rows from `build` to one row per text; by default as for decoders. */
  readonly pool?: (b: PlanBuilder, x: Value, h: Hparams, pooling: ModelPooling) => Value;
}
