// Generated from rust-kernels/src/ffi.rs by `deno task bindings`; do not edit.

/** Changes whenever an export's meaning or a message's layout does. */
export const ABI_VERSION = 18;

const parameters = ["u64", "buffer", "usize", "buffer", "usize"] as const;

/** Handle, input and its length, output and its length; the result is bytes written, or -1 - n for a message. */
export const SYMBOLS = {
  /** Output: the ABI version (u32). */
  compy_abi_version: { parameters, result: "i32" },
  /** Output: the names of the instruction sets that this CPU can run, best first, separated by commas. */
  compy_instruction_sets: { parameters, result: "i32" },
  /** Output: physical cores that this process may run on (u32). */
  compy_cores: { parameters, result: "i32" },
  /** Output: for each NUMA node that this process may use, its physical cores, its processors and their numbers (u32 each). */
  compy_nodes: { parameters, result: "i32" },
  /** Input: threads (u32), the processors on which they run (u32 each, after their count; none for all), name of the instruction set (the best one where empty). Output: a handle (u64). */
  compy_model_new: { parameters, result: "i32" },
  /** Output: name of the instruction set in use. */
  compy_model_isa: { parameters, result: "i32" },
  /** Output: a row count R (u32). A step's matrix products take R rows as fast as slightly fewer rows. */
  compy_model_whole_rows: { parameters, result: "i32" },
  /** Input: type, columns, rows (u32 each). Output: bytes of the packed matrix (u64). */
  compy_packed_bytes: { parameters, result: "i32" },
  /** Input: tensors (u32), bytes of all packed matrices (u64), the file's path. */
  compy_model_open: { parameters, result: "i32" },
  /** Input: a path. The following tensors are loaded from that file, until another file is named. */
  compy_model_file: { parameters, result: "i32" },
  /** Call this before a matrix is loaded. Input: its index (u32), then factors (f32 each). Its rows are split into as many equal parts, and each part is multiplied by its factor. */
  compy_tensor_factors: { parameters, result: "i32" },
  /** Input: index, kind (0 matrix, 1 vector), type, columns, rows (u32 each), byte offset (u64). */
  compy_tensor_load: { parameters, result: "i32", nonblocking: true },
  /** Loads some rows of a tensor that is not in a file, in order. Input: index, kind (0 matrix, 1 vector), type, columns, rows, the first row (u32 each). The rows follow as they would be in a file. */
  compy_tensor_rows: { parameters, result: "i32", nonblocking: true },
  /** Input: a tensor type (u32), then blocks of this type. Output: their values (f32 each). */
  compy_dequantize: { parameters, result: "i32", nonblocking: true },
  /** Input: an encoded plan. */
  compy_plan_compile: { parameters, result: "i32", nonblocking: true },
  /** Input: an encoded step. Output: its answers, or nothing if the step was stopped. */
  compy_step: { parameters, result: "i32", nonblocking: true },
  /** Call this before each step. Input: the step's number, how many masks will follow while it runs, and words per mask (u32 each). */
  compy_step_prepare: { parameters, result: "i32" },
  /** Hands over a mask. Input: the number of its step, the mask's index (u32 each), then one bit per token. */
  compy_mask: { parameters, result: "i32" },
  /** Asks the running step to stop. */
  compy_stop: { parameters, result: "i32" },
  /** Copies KV blocks and recurrent states out of the model. Input: the numbers of blocks and slots, a group and a block for each block, then the slots (u32 each). Output: keys and values of each block, floats of each slot. */
  compy_cache_read: { parameters, result: "i32", nonblocking: true },
  /** Copies KV blocks and recurrent states into the model. Input: as for compy_cache_read, then its output. */
  compy_cache_write: { parameters, result: "i32", nonblocking: true },
  /** Output: nanoseconds spent in each op of the plan since the last call (u64 each). */
  compy_profile: { parameters, result: "i32", nonblocking: true },
  /** Measures this machine. Input: threads (u32). Output: read bandwidth in GB/s, int8 and f32 peaks in 10^9 operations a second (f64 each). */
  compy_limits: { parameters, result: "i32", nonblocking: true },
  /** Frees the model's memory and invalidates the handle. */
  compy_model_free: { parameters, result: "i32" },
} as const;
