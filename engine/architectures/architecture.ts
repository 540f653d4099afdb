import type { ArchitectureKeys } from "../gguf/architecture_keys.ts";
import type { Allowed, Hparams } from "../gguf/hparams.ts";
import type { GgufFile } from "../gguf/types.ts";
import type { ModelPooling, PoolingKind } from "../gguf/pooling.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import type { LogitOptions } from "../plan/ops/candidates.ts";
import type { Rope } from "./parts/rope.ts";

/** A layer's tensor, without `.weight`. */
export type TensorName = (tensor: string) => string;

/** How a graph ends, after its last layer. */
export interface Ending {
  /** The norm after the last layer; by default "output_norm". */
  readonly norm?: string;
  /** It is about the mean; by default as the architecture's norms are. */
  readonly layerNorm?: boolean;
  /** Gives rows of whole texts only: no logits, and no output matrix. */
  readonly encoder?: boolean;
  /** What becomes of the logits; by default they are taken as they are. */
  readonly logits?: LogitOptions;
}

/** What `general.architecture` names. A file of this folder exports one, or some that are alike; registry.ts lists them all. */
export interface Architecture {
  /** What its files may say beyond a plain decoder's; the rest is refused. */
  readonly allows?: Allowed;
  /** By default: "output_norm", then logits. */
  readonly ending?: (keys: ArchitectureKeys, h: Hparams) => Ending;
  /** Writes the layers of a file whose hyper-parameters are checked; returns the last one's rows, which are not normed yet. */
  readonly build: (b: PlanBuilder, h: Hparams, rope: Rope) => Value;
  /** Whether a layer behind the others drafts tokens, and the file has it; `build` writes it where the builder `drafts`. */
  readonly hasDraftLayer?: (file: GgufFile, h: Hparams) => boolean;
  /** How whole texts are pooled where the file does not say; by default their last row. */
  readonly pooling?: PoolingKind;
  /** Makes a row for each whole text of the rows that `build` returns; by default as decoders do. */
  readonly pool?: (b: PlanBuilder, x: Value, h: Hparams, pooling: ModelPooling) => Value;
}
