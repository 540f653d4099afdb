import { ABI_VERSION, SYMBOLS } from "./bindings.ts";
import { KERNELS } from "./names.ts";
import { NativeLibrary } from "./native.ts";

/** An error that the kernels reported, in their words. */
export class KernelError extends Error {
  override name = "KernelError";
}

/** The kernels' library, opened once a process. */
export class KernelLibrary extends NativeLibrary<typeof SYMBOLS> {
  static #instance: KernelLibrary | undefined;

  /** Throws LibraryNotFound where no place has one that was built from the sources of these bindings. */
  static open(): KernelLibrary {
    return this.#instance ??= new KernelLibrary({
      library: KERNELS,
      symbols: SYMBOLS,
      version: { name: "compy_abi_version", wanted: ABI_VERSION },
      error: KernelError,
    });
  }
}
