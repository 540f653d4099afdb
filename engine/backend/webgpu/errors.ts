/** The GPU cannot be used, or no longer; says why and what to do. */
export class GpuError extends Error {
  override name = "GpuError";
}

/** The device is gone: nothing on it can be computed any more, and what was held on it is lost. */
export class GpuLost extends GpuError {
  override name = "GpuLost";
}
