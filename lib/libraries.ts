/** Where the native libraries are, for compy's own commands. */
export { installedLibraries, kernelsLibrary, LIBRARY_VARIABLE } from "../ffi/find.ts";
