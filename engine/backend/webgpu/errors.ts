/** The GPU cannot be used as asked. The message says why and what to do. */
export class GpuError extends Error {
  override name = "GpuError";
}
