import type { Words } from "../api/errors.ts";
import type {
  Accuracy,
  ActivationPrecision,
  Arithmetic,
  BackendName,
  KvType,
  PoolingKind,
} from "../backend/backend.ts";
import type { OpenSource } from "../gguf/byte_source.ts";
import type { Speculate } from "../speculation/choose.ts";
import type { ComingKernels } from "./coming_kernels.ts";
import type { MemoryRoom } from "./memory_error.ts";
import type { SizeOptions } from "./size.ts";

/** Options of loading a model. */
export interface LoadOptions extends Omit<SizeOptions, "drafts"> {
  readonly model: string;
  /** Opens the model's files; by default from this machine's file system. */
  readonly open?: OpenSource;
  /** The name that requests use; by default the file's base name without `.gguf`. */
  readonly id?: string;
  /** Number of compute threads; by default one per physical core. */
  readonly threads?: number;
  /** Name of the instruction set; by default the best that the CPU has. */
  readonly isa?: string;
  /** The backend that computes; by default the CPU. */
  readonly backend?: BackendName;
  /** Arithmetic of the GPU's matrix products; by default f32. */
  readonly arithmetic?: Arithmetic;
  /** Whether a GPU may use an arithmetic that fails the model's accuracy gates; by default "gated": it may not. */
  readonly accuracy?: Accuracy;
  /** Storage type of keys and values in the KV cache; by default f16. */
  readonly kvType?: KvType;
  /** How draft tokens are proposed; by default "auto". Not on a GPU. */
  readonly speculate?: Speculate;
  /** File of a smaller model with the same vocabulary that proposes drafts. */
  readonly draft?: string;
  /** The precision that activations are rounded to before products with blocks of weights; by default `fast`. */
  readonly activations?: ActivationPrecision;
  /** How a text's rows are pooled into one; by default as the file says, or else the last row. */
  readonly pooling?: PoolingKind;
  /** Bytes that the model may take; by default the free memory, if known. Not for GPU memory. */
  readonly freeBytes?: number;
  /** Names the bound behind `freeBytes` in messages, if it is not this machine's memory. */
  readonly freeRoom?: MemoryRoom;
  readonly progress?: (done: number, total: number) => void;
  /** Words the settings in notes and in the reason for a backend; by default options of the library. */
  readonly words?: Words;
  /** Receives warnings about problems that do not stop the load. */
  readonly warn?: (message: string) => void;
  /** Stores prompts on a disk. CPU only. */
  readonly promptCache?: PromptCacheOptions;
  /** Aborts the load between two tensors, with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Native kernels that the engine will move to; see loadReloadingEngine. */
  readonly coming?: ComingKernels;
}

/** Where prompts are stored so that a later process can reuse them. */
export interface PromptCacheOptions {
  readonly folder: string;
  /** Maximum bytes on the disk. */
  readonly bytes: number;
  /** Write each prompt at once, not only when it is used a second time. */
  readonly eager?: boolean;
  /** Never evict a prompt that was written or used within this many milliseconds. */
  readonly keepMs?: number;
}
