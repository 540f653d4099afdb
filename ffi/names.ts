/** The native libraries, and how their files are called. */

export interface LibraryName {
  /** In messages: `kernels`. */
  readonly what: string;
  /** Of the file, without what a platform adds: `compy` is libcompy.so on Linux. */
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
