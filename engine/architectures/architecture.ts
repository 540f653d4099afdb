import type { ArchitectureKeys } from "../gguf/hparams/architecture_keys.ts";
import type { Allowed, Hparams } from "../gguf/hparams/hparams.ts";
import type { ModelPooling, PoolingKind } from "../gguf/hparams/pooling.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import type { LogitOptions } from "../plan/ops/candidates.ts";
import type { Rope } from "./parts/rope.ts";

/** Maps a tensor's short name to its full name in a layer, without `.weight`. */
export type TensorName = (tensor: string) => string;

/** What the graph does after its last layer. */
export interface Ending {
  /** The norm after the last layer; by default "output_norm". */
  readonly norm?: string;
  /** Whether the norm is a LayerNorm; by default the architecture's kind. */
  readonly layerNorm?: boolean;
  /** An encoder returns rows of whole texts. An encoder has no logits and no output matrix. */
  readonly encoder?: boolean;
  /** How logits are scaled or bounded; by default not at all. */
  readonly logits?: LogitOptions;
}

/**
 * One value of `general.architecture`. A file in this folder exports one architecture or a few similar ones;
 * registry.ts lists them all.
 */
export interface Architecture {
  /** Features that files may use beyond a plain decoder's. Others are refused. */
  readonly allows?: Allowed;
  /** Whether the decoder takes rows of images, with M-RoPE's positions in turns. */
  readonly images?: boolean;
  /** By default: "output_norm", then logits. */
  readonly ending?: (keys: ArchitectureKeys, h: Hparams) => Ending;
  /**
   * Builds the layers of a file with validated hyper-parameters. Returns the last layer's rows, before the
   * final norm.
   */
  readonly build: (b: PlanBuilder, h: Hparams, rope: Rope) => Value;
  /** Whether `build` adds the file's extra layer that drafts tokens, for a builder that `drafts`. */
  readonly drafts?: boolean;
  /** Default pooling for whole texts when the file has none; by default their last row. */
  readonly pooling?: PoolingKind;
  /** Pools the rows that `build` returns to one row per text; by default as decoders do. */
  readonly pool?: (b: PlanBuilder, x: Value, h: Hparams, pooling: ModelPooling) => Value;
}
