/** The native libraries and their file names. */

export interface LibraryName {
  /** The library's name in messages, such as `kernels`. */
  readonly what: string;
  /** Base name of the library's file: `compy` is libcompy.so on Linux. */
  readonly name: string;
  /** Folder of the library's crate, such as `rust-kernels`. */
  readonly crate: string;
}

export const KERNELS: LibraryName = { what: "kernels", name: "compy", crate: "rust-kernels" };
export const GRAMMARS: LibraryName = {
  what: "grammar library",
  name: "compy_grammar",
  crate: "rust-grammar",
};

/** A library file's name on this platform. */
export function libraryFile(name: string): string {
  if (process.platform === "win32") return `${name}.dll`;
  return process.platform === "darwin" ? `lib${name}.dylib` : `lib${name}.so`;
}
