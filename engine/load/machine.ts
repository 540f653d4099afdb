import type { BackendName } from "../backend/backend.ts";
import { defaultBackend } from "../backend/choose.ts";
import { CpuBackend } from "../backend/cpu/cpu.ts";
import { WasmBackend } from "../backend/wasm/wasm.ts";
import type { MachineLimits } from "../plan/cost.ts";

export type { MachineLimits } from "../plan/cost.ts";

/** Measures the compute hardware of this machine, without a model. */

/** Opens the kernels for `backend`, or for the default backend. Throws KernelError and WasmError. */
async function openKernels(
  threads: number,
  backend: BackendName | undefined,
): Promise<CpuBackend | WasmBackend> {
  const kind = backend === "cpu" || backend === "wasm" ? backend : defaultBackend();
  return kind === "wasm" ? await WasmBackend.open({ threads }) : new CpuBackend({ threads });
}

/**
 * Returns the names of the CPU's instruction sets with native kernels, best first. With WebAssembly, returns its single
 * name. Throws KernelError and WasmError.
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
 * Measures the machine's limits with `threads` threads. Takes about a second, all time of the threads' cores, and 512
 * MiB of memory. Throws KernelError and WasmError.
 */
export async function measureLimits(threads: number, backend?: BackendName): Promise<MachineLimits> {
  const kernels = await openKernels(threads, backend);
  try {
    return await kernels.measureLimits();
  } finally {
    kernels.close();
  }
}

/** A GPU adapter, and the results of testing it. */
export interface GpuReport {
  readonly name: string;
  /** Whether the adapter computes on the CPU. */
  readonly software: boolean;
  /** Whether the adapter supports 16-bit floats and computes them correctly. */
  readonly f16: boolean;
  /**
   * Largest error of f32 products on the GPU, relative to the sum of their magnitudes; NaN or Infinity if no result is
   * right.
   */
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
