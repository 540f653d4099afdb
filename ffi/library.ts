import { ABI_VERSION, SYMBOLS } from "./bindings.ts";
import { KERNELS } from "./names.ts";
import { NativeLibrary } from "./native.ts";

/** An error with the kernels' message. */
export class KernelError extends Error {
  override name = "KernelError";
}

/** The kernels' library, opened once per process. */
export class KernelLibrary extends NativeLibrary<typeof SYMBOLS> {
  static #instance: KernelLibrary | undefined;

  /** Opens the kernels. Throws LibraryNotFound if no place has a library of these bindings' sources. */
  static open(): KernelLibrary {
    return this.#instance ??= new KernelLibrary({
      library: KERNELS,
      symbols: SYMBOLS,
      version: { name: "compy_abi_version", wanted: ABI_VERSION },
      error: KernelError,
    });
  }
}
