import { GRAMMARS } from "./names.ts";
import { NativeLibrary } from "./native.ts";
import { parameters } from "./runtime.ts";

/** Expected ABI version. It changes whenever an export's meaning or a message's layout does. */
const ABI_VERSION = 4;

/**
 * The exports of rust-grammar/src/ffi.rs, which documents them. Parameters: a handle, input and its length, output and
 * its length. The result is the number of bytes written, or -1 - n for a message of n bytes.
 */
const SYMBOLS = {
  compy_grammar_abi_version: { parameters, result: "i32" },
  compy_grammar_vocabulary: { parameters, result: "i32", nonblocking: true },
  compy_grammar_compile: { parameters, result: "i32", nonblocking: true },
  compy_grammar_compiles: { parameters, result: "i32" },
  compile_now: { name: "compy_grammar_compile", parameters, result: "i32" },
  compy_grammar_matcher: { parameters, result: "i32" },
  compy_grammar_consume: { parameters, result: "i32" },
  compy_grammar_forced: { parameters, result: "i32" },
  compy_grammar_masks: { parameters, result: "i32", nonblocking: true },
  compy_grammar_draft_masks: { parameters, result: "i32", nonblocking: true },
  compy_grammar_free: { parameters, result: "i32" },
} as const;

/** An error with the library's message. */
export class GrammarLibraryError extends Error {
  override name = "GrammarLibraryError";
}

/** The library that compiles constraints, opened at the first use. */
export class GrammarLibrary extends NativeLibrary<typeof SYMBOLS> {
  static #instance: GrammarLibrary | undefined;

  /** Opens the grammar library. Throws LibraryNotFound if no place has a library of these sources. */
  static open(): GrammarLibrary {
    return this.#instance ??= new GrammarLibrary({
      library: GRAMMARS,
      symbols: SYMBOLS,
      version: { name: "compy_grammar_abi_version", wanted: ABI_VERSION },
      error: GrammarLibraryError,
    });
  }
}
