import { WordedError } from "../../api/errors.ts";

/** The GPU cannot run the model with the requested options. The message says why and what to do. */
export class GpuError extends WordedError {
  override name = "GpuError";
}

/** Returns the error for a model that only the CPU can run. `reason` says what the GPU lacks. */
export function unsupportedOnGpu(reason: string): GpuError {
  return new GpuError([`${reason}; use `, { backend: "cpu" }]);
}

/** Returns the error for a model with a feature that the GPU backend lacks. */
export function cannotRun(reason: string): GpuError {
  return unsupportedOnGpu(`Cannot run this model on the GPU: ${reason}`);
}
