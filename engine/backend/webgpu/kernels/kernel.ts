import type { Kernel } from "./types.ts";

/** Returns a kernel without WGSL overrides for any number of rows. The first word of its key is its entry point. */
export function kernelOf(
  key: string,
  code: string,
  workgroups: Kernel["workgroups"],
  work?: Kernel["work"],
): Kernel {
  return { key, code, entryPoint: key.split(" ")[0], constants: {}, maxRows: Infinity, workgroups, work };
}
