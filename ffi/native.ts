/** A crate's library whose exports have one shape (rust-kernels/src/ffi.rs, rust-grammar/src/ffi.rs). */

/** Of every export: a handle, input and its length, output and its length. */
export const parameters = ["u64", "buffer", "usize", "buffer", "usize"] as const;

type Export = Readonly<
  { name?: string; parameters: typeof parameters; result: "i32"; nonblocking?: boolean }
>;
type Call = (
  handle: bigint,
  input: Uint8Array<ArrayBuffer>,
  inputBytes: bigint,
  output: Uint8Array<ArrayBuffer>,
  outputBytes: bigint,
) => number | Promise<number>;

/** What tells one library from another. */
export interface NativeOptions<Symbols> {
  /** What it is in messages: `kernels`. */
  readonly name: string;
  readonly path: string;
  readonly symbols: Symbols;
  /** The export that says which version of the exports it has, and the one that these symbols are of. */
  readonly version: { readonly name: keyof Symbols; readonly wanted: number };
  /** What failures are thrown as. */
  readonly error: new (message: string) => Error;
}

const NOTHING = new Uint8Array(0);
/** Room for every answer whose length the caller does not know, and for a message. */
const ANSWER_BYTES = 4096;

/** Where cargo leaves the library of one of the crates. */
export function builtLibrary(crate: string, name: string): string {
  const file = { windows: `${name}.dll`, darwin: `lib${name}.dylib` }[Deno.build.os as string] ??
    `lib${name}.so`;
  return decodeURIComponent(new URL(`../${crate}/target/release/${file}`, import.meta.url).pathname);
}

/**
 * An open library. It is never closed: threads of its own may still run in it. The constructor throws the library's kind of
 * error where it is missing or was built from other sources than these symbols.
 */
export class NativeLibrary<Symbols extends Record<string, Export>> {
  readonly #symbols: Record<keyof Symbols, Call>;
  readonly #error: new (message: string) => Error;

  constructor({ name, path, symbols, version, error: LibraryError }: NativeOptions<Symbols>) {
    this.#error = LibraryError;
    try {
      this.#symbols = Deno.dlopen(path, symbols).symbols as Record<keyof Symbols, Call>;
    } catch (error) {
      if (error instanceof Deno.errors.NotCapable) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new LibraryError(`Cannot load the ${name} from ${path}: ${reason}. Run \`deno task build\``);
    }
    const found = new DataView(this.call(version.name, 0n).buffer).getUint32(0, true);
    if (found === version.wanted) return;
    const detail = `its ABI version must be ${version.wanted} (got ${found})`;
    throw new LibraryError(`Cannot use the ${name} in ${path}: ${detail}. Run \`deno task build\``);
  }

  /** Calls an export that returns at once. Returns the bytes written; throws what was reported instead. */
  call(
    name: keyof Symbols,
    handle: bigint,
    input: Uint8Array<ArrayBuffer> = NOTHING,
    output: Uint8Array<ArrayBuffer> = new Uint8Array(ANSWER_BYTES),
  ): Uint8Array<ArrayBuffer> {
    const written = this.#symbols[name](handle, input, BigInt(input.length), output, BigInt(output.length));
    return this.#answer(written as number, output);
  }

  /**
   * Calls an export on a thread of its own. `input` and `output` are lent until the promise settles: they must not be changed,
   * transferred or resized.
   */
  async callAsync(
    name: keyof Symbols,
    handle: bigint,
    input: Uint8Array<ArrayBuffer>,
    output: Uint8Array<ArrayBuffer> = new Uint8Array(ANSWER_BYTES),
  ): Promise<Uint8Array<ArrayBuffer>> {
    const written = this.#symbols[name](handle, input, BigInt(input.length), output, BigInt(output.length));
    return this.#answer(await written, output);
  }

  #answer(written: number, output: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    if (written >= 0) return output.subarray(0, written);
    throw new this.#error(new TextDecoder().decode(output.subarray(0, -1 - written)));
  }
}
