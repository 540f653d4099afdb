import { ABI_VERSION, SYMBOLS } from "./bindings.ts";

/** An error that the kernels reported, in their words. */
export class KernelError extends Error {
  override name = "KernelError";
}

type SymbolName = keyof typeof SYMBOLS;
type Symbols = Deno.StaticForeignLibraryInterface<typeof SYMBOLS>;

const NOTHING = new Uint8Array(0);
/** Room for every answer that is not a step's, and for a message. */
const ANSWER_BYTES = 4096;

/** Where `deno task build` leaves the kernels' library. */
export function libraryPath(): string {
  return builtLibrary("rust-kernels", "compy");
}

/** Where cargo leaves the library of one of the crates. */
export function builtLibrary(crate: string, name: string): string {
  const file = { windows: `${name}.dll`, darwin: `lib${name}.dylib` }[Deno.build.os as string] ??
    `lib${name}.so`;
  return decodeURIComponent(new URL(`../${crate}/target/release/${file}`, import.meta.url).pathname);
}

/**
 * The kernels' library, opened once a process and never closed: threads of its own may still run in it.
 * Throws KernelError where it is missing or was built from other sources than these bindings.
 */
export class KernelLibrary {
  static #instance: KernelLibrary | undefined;
  readonly #symbols: Symbols;

  static open(): KernelLibrary {
    return this.#instance ??= new KernelLibrary(libraryPath());
  }

  private constructor(path: string) {
    try {
      this.#symbols = Deno.dlopen(path, SYMBOLS).symbols;
    } catch (error) {
      if (error instanceof Deno.errors.NotCapable) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new KernelError(`Cannot load the kernels from ${path}: ${reason}. Run \`deno task build\``);
    }
    const found = new DataView(this.call("compy_abi_version", 0n).buffer).getUint32(0, true);
    if (found !== ABI_VERSION) {
      const detail = `its ABI version must be ${ABI_VERSION} (got ${found})`;
      throw new KernelError(`Cannot use the kernels in ${path}: ${detail}. Run \`deno task build\``);
    }
  }

  /** Calls an export that returns at once. */
  call(name: SymbolName, handle: bigint, input: Uint8Array<ArrayBuffer> = NOTHING): Uint8Array<ArrayBuffer> {
    const output = new Uint8Array(ANSWER_BYTES);
    const n = this.#symbols[name](handle, input, BigInt(input.length), output, BigInt(output.length));
    return answer(n as number, output);
  }

  /**
   * Calls an export on a thread of its own. `input` and `output` are lent until the promise settles: they must not
   * be changed, transferred or resized.
   */
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

/** The bytes written, or the error that was reported instead. */
function answer(n: number, output: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  if (n >= 0) return output.subarray(0, n);
  throw new KernelError(reported(n, output));
}

/** The message that an export wrote instead of an answer. */
export function reported(n: number, output: Uint8Array): string {
  return new TextDecoder().decode(output.subarray(0, -1 - n));
}
