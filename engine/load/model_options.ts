/**
 * Options with which a model is loaded. A new option needs its type and its entry here, and the code that applies it.
 */
import {
  ACCURACIES,
  type Accuracy,
  ACTIVATION_PRECISIONS,
  type ActivationPrecision,
  type Arithmetic,
  ARITHMETICS,
  type BackendName,
  BACKENDS,
  KV_TYPES,
  type KvType,
  POOLING_KINDS,
  type PoolingKind,
} from "../backend/backend.ts";
import { SPECULATE, type Speculate } from "../speculation/choose.ts";

/**
 * Options of `loadModel`. Defaults depend on the file and the machine.
 *
 * ```ts
 * import { loadModel, type LoadOptions } from "compy";
 *
 * const options: LoadOptions = {
 *   parallel: 8,
 *   ctx: 256,
 *   onProgress: ({ done, total }) => console.log(`${Math.floor(100 * done / total)} %`),
 *   signal: AbortSignal.timeout(60_000),
 * };
 * await using model = await loadModel(undefined, options);
 * console.log(model.info.contextLength);
 * ```
 */
export interface LoadOptions {
  /** Maximum number of requests that run together; others wait. Default 4. */
  readonly parallel?: number;
  /**
   * Context window: maximum tokens of prompt and answer. By default the model's own context, as far as memory is free.
   */
  readonly ctx?: number;
  /**
   * The backend. `auto` chooses the GPU if it measures faster. Default the native CPU kernels, or WebAssembly without
   * them.
   */
  readonly backend?: BackendName;
  /** Number of compute threads. Default one per physical core. */
  readonly threads?: number;
  /**
   * On a machine with several NUMA nodes, the model has an engine per node, each with its own copy of the weights. `off`
   * makes one engine for all nodes. A list of each node's processors, such as `0-15/16-31`, defines other nodes. Default
   * `auto`: an engine per node, if memory has room and `parallel` is large enough.
   */
  readonly numa?: string;
  /** Instruction set, such as `avx2`. Default the best of this CPU. */
  readonly isa?: string;
  /** Arithmetic of a GPU's matrix products. Default `f32`. */
  readonly arithmetic?: Arithmetic;
  /** Whether a GPU may use an arithmetic that fails the model's accuracy gates. Default `gated`: no. */
  readonly accuracy?: Accuracy;
  /**
   * Storage type of the KV cache. Default `f16`: 16 bits per value; on the CPU these are integers with one scale per
   * head.
   */
  readonly kvType?: KvType;
  /**
   * Precision of activations in products with quantized weights. `fine` is more exact and slower for prompts. Default
   * `fast`.
   */
  readonly activations?: ActivationPrecision;
  /**
   * Bytes of the KV cache. Default enough for `parallel` requests of `ctx` tokens; without `ctx`, for `parallel`
   * requests of 4096 tokens or one longer request.
   */
  readonly kvBytes?: number;
  /** Source of draft tokens. Drafts make answers faster and never change them. Default `auto`. */
  readonly speculate?: Speculate;
  /** File that drafts tokens: a smaller model with the same vocabulary, or a drafter made for the model. */
  readonly draft?: string;
  /**
   * Files of LoRA adapters in GGUF, each with an optional scale: `FILE` or `FILE=SCALE`. Requests use all of them, each
   * with its scale (default 1), unless they choose others.
   */
  readonly lora?: readonly string[];
  /** File of the model's vision tower (mmproj), with which requests may have images. Default one beside the model that fits it. CPU only. */
  readonly mmproj?: string;
  /** How a text's rows are pooled into one vector. Default as the file says. */
  readonly pooling?: PoolingKind;
  /** Maximum number of waiting requests. Default 256. */
  readonly queue?: number;
  /** The model's id. Default its file name without `.gguf`. */
  readonly id?: string;
  /** Jinja source of a chat template that replaces the file's template. */
  readonly chatTemplate?: string;
  /** Stores prompts in a folder, up to `bytes` bytes, so that a later process reuses them. CPU only. */
  readonly promptCache?: { readonly folder: string; readonly bytes: number; readonly eager?: boolean };
  /** Whether a failed model is loaded again, as a server does. Default false. */
  readonly reload?: boolean;
  /** Receives the progress of loading: bytes of weights. */
  readonly onProgress?: (progress: { readonly done: number; readonly total: number }) => void;
  /** Receives warnings about problems that do not stop the load. */
  readonly onWarning?: (message: string) => void;
  /** Cancels the load, which then throws the signal's reason. */
  readonly signal?: AbortSignal;
}

/** Describes one option, for the library's checks and for the commands' options. */
export interface LoadOption {
  /** Placeholder for the option's value in a command's help. */
  readonly placeholder: string;
  /** What the option does, its values and its default, without capital letter and full stop. */
  readonly doc: string;
  /** The allowed words for an option; without them any text, or a whole number. */
  readonly words?: readonly string[];
  /** Maximum of a whole-number option; the minimum is 1. */
  readonly max?: number;
  readonly isFile?: boolean;
  /** Whether the option is a list; its flag may be repeated. */
  readonly isList?: boolean;
}

type LoadOptionTable = { readonly [Name in keyof LoadOptions]?: LoadOption };

/** Options of the computation. */
export const COMPUTE_OPTIONS = {
  threads: { placeholder: "N", max: 1024, doc: "compute threads (default: one per physical core)" },
  isa: {
    placeholder: "NAME",
    doc: "instruction set of the CPU kernels, such as avx2 (default: the best that this CPU has)",
  },
  backend: {
    placeholder: "NAME",
    words: BACKENDS,
    doc:
      "where to compute: cpu, wasm (WebAssembly), webgpu, or auto, which is the GPU if it measures faster " +
      "(default: cpu, or wasm without native kernels)",
  },
  arithmetic: {
    placeholder: "A",
    words: ARITHMETICS,
    doc: "arithmetic of the GPU's matrix products: f32 or f16 (default: f32)",
  },
  accuracy: {
    placeholder: "A",
    words: ACCURACIES,
    doc:
      "gated refuses a GPU arithmetic that fails the model's accuracy gates; any allows it (default: gated)",
  },
  kvType: {
    placeholder: "T",
    words: KV_TYPES,
    doc:
      "type of the values in the KV cache: f16 (16 bits; on the CPU, integers with one scale per head), q8_0, which " +
      "takes 53 % of that memory, or q4_0 (CPU only), which takes 34 % (default: f16)",
  },
  activations: {
    placeholder: "A",
    words: ACTIVATION_PRECISIONS,
    doc:
      "precision of activations in products with quantized weights, on the CPU: fast (8 bits), or fine (15 bits: " +
      "closer to exact, prompts at about half the speed) (default: fast)",
  },
} as const satisfies LoadOptionTable;

/** The option that distributes engines over NUMA nodes. */
export const NUMA_OPTIONS = {
  numa: {
    placeholder: "NODES",
    doc:
      "engines for NUMA nodes, each with its own copy of the weights: auto (one per node of the machine, if memory has " +
      "room), off, or the processors of each node, such as 0-15/16-31 (default: auto; off for several models)",
  },
} as const satisfies LoadOptionTable;

/** Options for the source of draft tokens. */
export const DRAFT_OPTIONS = {
  speculate: {
    placeholder: "S",
    words: SPECULATE,
    doc:
      "source of draft tokens, which make answers faster and never change them: auto, off, lookup (repetitions in " +
      "the text), mtp (the model's own drafting layer) or draft (the file that draft names) (default: auto)",
  },
  draft: {
    placeholder: "FILE",
    isFile: true,
    doc:
      "a smaller model with the same vocabulary, or a drafter made for the model (EAGLE-3, DFlash or Gemma 4's), " +
      "which proposes draft tokens",
  },
} as const satisfies LoadOptionTable;

/** Adapters beside the model's matrices. */
export const ADAPTER_OPTIONS = {
  lora: {
    placeholder: "FILE",
    isFile: true,
    isList: true,
    doc:
      "a LoRA adapter in GGUF, FILE or FILE=SCALE (default scale: 1; 0 applies it only where a request asks for it); " +
      "may be repeated (docs/LORA.md); CPU only",
  },
} as const satisfies LoadOptionTable;

/** How images become rows. */
export const IMAGE_OPTIONS = {
  mmproj: {
    placeholder: "FILE",
    isFile: true,
    doc:
      "the model's vision tower, with which requests may have images; CPU only (default: a file beside the model with " +
      "mmproj in its name that fits it)",
  },
} as const satisfies LoadOptionTable;

/** How texts become vectors. */
export const VECTOR_OPTIONS = {
  pooling: {
    placeholder: "P",
    words: POOLING_KINDS,
    doc:
      "how the rows of a text become one vector: mean, cls (the first row), last, or rank (a ranking head) " +
      "(default: as the file says; else last, or mean for encoders)",
  },
} as const satisfies LoadOptionTable;
