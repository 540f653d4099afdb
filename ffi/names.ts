/** The native libraries and their file names. */

export interface LibraryName {
  /** The name in messages: `kernels`. */
  readonly what: string;
  /** The file's base name: `compy` is libcompy.so on Linux. */
  readonly name: string;
  /** The crate's folder: `rust-kernels`. */
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
