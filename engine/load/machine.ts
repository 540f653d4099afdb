import type { BackendName } from "../backend/backend.ts";
import { defaultBackend } from "../backend/choose.ts";
import { CpuBackend } from "../backend/cpu/cpu.ts";
import { WasmBackend } from "../backend/wasm/wasm.ts";
import type { MachineLimits } from "../plan/cost.ts";

export type { MachineLimits } from "../plan/cost.ts";

/** Measures the compute hardware of this machine, without a model. */

/** Opens the kernels that compute for `backend`, or for the default backend. Throws KernelError and WasmError. */
async function openKernels(
  threads: number,
  backend: BackendName | undefined,
): Promise<CpuBackend | WasmBackend> {
  const kind = backend === "cpu" || backend === "wasm" ? backend : defaultBackend();
  return kind === "wasm" ? await WasmBackend.open({ threads }) : new CpuBackend({ threads });
}

/**
 * Returns the names of the CPU's instruction sets that have native kernels, best first. With WebAssembly, returns its
 * one name. Throws KernelError and WasmError.
 */
export async function instructionSets(backend?: BackendName): Promise<string[]> {
  const kernels = await openKernels(1, backend);
  try {
    return kernels.info.name === "cpu" ? CpuBackend.instructionSets() : [kernels.info.isa];
  } finally {
    kernels.close();
  }
}

/**
 * Measures the limits with `threads` threads. The measurement takes about a second, fully loads the threads' cores
 * and uses 512 MiB of memory. Throws KernelError and WasmError.
 */
export async function measureLimits(threads: number, backend?: BackendName): Promise<MachineLimits> {
  const kernels = await openKernels(threads, backend);
  try {
    return await kernels.measureLimits();
  } finally {
    kernels.close();
  }
}

/** A GPU adapter, and the results of trying it. */
export interface GpuReport {
  readonly name: string;
  /** Whether it computes on the CPU. */
  readonly software: boolean;
  /** Whether it supports 16-bit floats and they work. */
  readonly f16: boolean;
  /** Largest error of f32 products, relative to the sum of their magnitudes; NaN or Infinity if no result is right. */
  readonly error: number;
}

/** Adapter names of drivers that compute on the CPU. */
const SOFTWARE = /llvmpipe|lavapipe|softpipe|swiftshader|basic render/i;

/**
 * Opens the GPU and runs small tests on it. Returns undefined without an adapter; throws GpuError if it cannot be
 * opened.
 */
export async function examineGpu(): Promise<GpuReport | undefined> {
  const { findAdapter, openGpu } = await import("../backend/webgpu/device/gpu.ts");
  const { probeProducts } = await import("../backend/webgpu/device/probes.ts");
  if (await findAdapter() === undefined) return undefined;
  const { device, name, kernels } = await openGpu();
  try {
    const error = await probeProducts(device);
    return { name, software: SOFTWARE.test(name), f16: kernels.f16, error };
  } finally {
    device.destroy();
  }
}
