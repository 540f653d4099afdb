import { findAdapter } from "../engine/backend/webgpu/device/gpu.ts";
import { fullTier } from "./tier.ts";

/**
 * Tests on WebGPU run if the machine has an adapter, or if COMPY_WEBGPU_REQUIRED demands one. Any Vulkan driver works;
 * Debian's mesa-vulkan-drivers has one that needs no GPU.
 */
const adapter = await findAdapter();
const required = Deno.env.get("COMPY_WEBGPU_REQUIRED") === "1";

/** Declares a test of the second tier. Without an adapter it is skipped, and its name says why. */
export function gpuTest(name: string, test: () => Promise<void>): void {
  const ignore = !adapter && !required;
  const why = ignore ? " (skipped: no WebGPU adapter; install mesa-vulkan-drivers for a software one)" : "";
  fullTier.test({ name: `webgpu: ${name}${why}`, ignore, fn: test });
}
