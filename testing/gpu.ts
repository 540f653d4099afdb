import { findAdapter } from "../engine/backend/webgpu/device/gpu.ts";
import { fullTier } from "./tier.ts";

/**
 * Whether tests on WebGPU run: where there is an adapter, or where COMPY_WEBGPU_REQUIRED says that there has to be one.
 * Any Vulkan driver will do; Debian's mesa-vulkan-drivers brings one that needs no GPU.
 */
const adapter = await findAdapter();
const required = Deno.env.get("COMPY_WEBGPU_REQUIRED") === "1";

/** A test of the second tier that is skipped, with the reason in its name, where there is no adapter. */
export function gpuTest(name: string, test: () => Promise<void>): void {
  const ignore = !adapter && !required;
  const why = ignore ? " (skipped: no WebGPU adapter; install mesa-vulkan-drivers for a software one)" : "";
  fullTier.test({ name: `webgpu: ${name}${why}`, ignore, fn: test });
}
