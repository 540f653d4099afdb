import { builtLibrary, reported } from "./library.ts";

/** Changes whenever an export's meaning or a message's layout does. */
const ABI_VERSION = 1;

const parameters = ["u64", "buffer", "usize", "buffer", "usize"] as const;

/**
 * The exports of rust-grammar/src/ffi.rs, which says what goes in and comes out: a handle, input and its length, output and its
 * length; the result is bytes written, or -1 - n for a message.
 */
const SYMBOLS = {
  compy_grammar_abi_version: { parameters, result: "i32" },
  compy_grammar_vocabulary: { parameters, result: "i32", nonblocking: true },
  compy_grammar_compile: { parameters, result: "i32", nonblocking: true },
  compile_now: { name: "compy_grammar_compile", parameters, result: "i32" },
  compy_grammar_matcher: { parameters, result: "i32" },
  compy_grammar_consume: { parameters, result: "i32" },
  compy_grammar_forced: { parameters, result: "i32" },
  compy_grammar_masks: { parameters, result: "i32", nonblocking: true },
  compy_grammar_free: { parameters, result: "i32" },
} as const;

type Symbols = Deno.StaticForeignLibraryInterface<typeof SYMBOLS>;
type SymbolName = keyof typeof SYMBOLS;

const NOTHING = new Uint8Array(0);
/** Room for every answer that is neither masks nor forced text, and for a message. */
const ANSWER_BYTES = 4096;

/** An error that the library reported, in its words. */
export class GrammarLibraryError extends Error {
  override name = "GrammarLibraryError";
}

/** Where `deno task build` leaves the library. */
export function grammarLibraryPath(): string {
  return builtLibrary("rust-grammar", "compy_grammar");
}

/**
 * The library that compiles constraints, opened at the first of them and never closed: threads of its own may still run in it.
 * Throws GrammarLibraryError where it is missing or was built from other sources than this.
 */
export class GrammarLibrary {
  static #instance: GrammarLibrary | undefined;
  readonly #symbols: Symbols;

  static open(): GrammarLibrary {
    return this.#instance ??= new GrammarLibrary(grammarLibraryPath());
  }

  private constructor(path: string) {
    try {
      this.#symbols = Deno.dlopen(path, SYMBOLS).symbols;
    } catch (error) {
      if (error instanceof Deno.errors.NotCapable) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new GrammarLibraryError(
        `Cannot load the grammar library from ${path}: ${reason}. Run \`deno task build\``,
      );
    }
    const output = this.call("compy_grammar_abi_version", 0n);
    const found = new DataView(output.buffer).getUint32(0, true);
    if (found !== ABI_VERSION) {
      const detail = `its ABI version must be ${ABI_VERSION} (got ${found})`;
      throw new GrammarLibraryError(
        `Cannot use the grammar library in ${path}: ${detail}. Run \`deno task build\``,
      );
    }
  }

  /** Calls an export that returns at once. */
  call(
    name: SymbolName,
    handle: bigint,
    input: Uint8Array<ArrayBuffer> = NOTHING,
    output: Uint8Array<ArrayBuffer> = new Uint8Array(ANSWER_BYTES),
  ): Uint8Array<ArrayBuffer> {
    const n = this.#symbols[name](handle, input, BigInt(input.length), output, BigInt(output.length));
    return answer(n as number, output);
  }

  /** Calls an export on a thread of its own. `input` and `output` are lent until the promise settles. */
  async callAsync(
    name: SymbolName,
    handle: bigint,
    input: Uint8Array<ArrayBuffer>,
    output: Uint8Array<ArrayBuffer> = new Uint8Array(ANSWER_BYTES),
  ): Promise<Uint8Array<ArrayBuffer>> {
    const n = await this.#symbols[name](handle, input, BigInt(input.length), output, BigInt(output.length));
    return answer(n, output);
  }
}

function answer(n: number, output: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  if (n >= 0) return output.subarray(0, n);
  throw new GrammarLibraryError(reported(n, output));
}
