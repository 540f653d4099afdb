/** Where the native libraries are, for compy's own commands. */
export { installedLibraries, LIBRARY_VARIABLE } from "../ffi/find.ts";
