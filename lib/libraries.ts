/** Finds and builds the native libraries, for compy's own commands. */
export { awaitLibrary } from "../ffi/awaited.ts";
export { BuildReport } from "../ffi/build_report.ts";
export { isBuilt } from "../ffi/built.ts";
export { type BuildEvent, buildLibrary, linesOf } from "../ffi/cargo.ts";
export { installedLibraries, kernelsLibrary, LIBRARY_VARIABLE, namedLibrary } from "../ffi/find.ts";
export { GRAMMARS, KERNELS, type LibraryName } from "../ffi/names.ts";
