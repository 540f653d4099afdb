import type { Words } from "../api/errors.ts";
import type { GivenTemplate } from "../chat/template/chat_template.ts";
import type { OpenSource } from "../gguf/byte_source.ts";
import type { ComingKernels } from "./coming_kernels.ts";
import type { LoadOptions as ModelOptions } from "./model_options.ts";
import type { MemoryRoom } from "./memory_error.ts";
import type { SizeOptions } from "./size.ts";

/** Options that the library passes on in another form. */
type LibraryOptions = "ctx" | "chatTemplate" | "promptCache" | "reload" | "onProgress" | "onWarning";

/** Options of loading a model. */
export interface LoadOptions
  extends Omit<SizeOptions, "drafts">, Omit<ModelOptions, keyof SizeOptions | LibraryOptions> {
  readonly model: string;
  /** Opens the model's files; by default from this machine's file system. */
  readonly open?: OpenSource;
  /** Bytes that the model may take; by default the free memory, if known. Not for GPU memory. */
  readonly freeBytes?: number;
  /** Words for the bound `freeBytes` in messages, if it is not this machine's free memory. */
  readonly freeRoom?: MemoryRoom;
  readonly progress?: (done: number, total: number) => void;
  /** Words for settings in notes and in the reason for a backend; by default library options. */
  readonly words?: Words;
  /** Receives warnings about problems that stop neither the load nor a request. */
  readonly warn?: (message: string) => void;
  /** The processors on which the kernels' threads run; by default all. */
  readonly processors?: readonly number[];
  /** A chat template that replaces the file's template. */
  readonly chatTemplate?: GivenTemplate;
  /** Where to store prompts on a disk. CPU only. */
  readonly promptCache?: PromptCacheOptions;
  /** Native kernels to which the engine will move (`loadReloadingEngine`). */
  readonly coming?: ComingKernels;
}

/** Where prompts are stored so that a later process can reuse them. */
export interface PromptCacheOptions {
  readonly folder: string;
  /** Maximum bytes on the disk. */
  readonly bytes: number;
  /** Whether to write each prompt at its first use, not only at its second. */
  readonly eager?: boolean;
  /** Milliseconds for which a prompt is kept after it was written or used. */
  readonly keepMs?: number;
}
