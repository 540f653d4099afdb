import { ABI_VERSION, SYMBOLS } from "./bindings.ts";
import { builtLibrary, NativeLibrary } from "./native.ts";

/** An error that the kernels reported, in their words. */
export class KernelError extends Error {
  override name = "KernelError";
}

/** Where `deno task build` leaves the kernels' library. */
export function libraryPath(): string {
  return builtLibrary("rust-kernels", "compy");
}

/** The kernels' library, opened once a process. */
export class KernelLibrary extends NativeLibrary<typeof SYMBOLS> {
  static #instance: KernelLibrary | undefined;

  /** Throws KernelError where it is missing or was built from other sources than these bindings. */
  static open(): KernelLibrary {
    return this.#instance ??= new KernelLibrary({
      name: "kernels",
      path: libraryPath(),
      symbols: SYMBOLS,
      version: { name: "compy_abi_version", wanted: ABI_VERSION },
      error: KernelError,
    });
  }
}
