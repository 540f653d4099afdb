import type { BackendName } from "./backend/backend.ts";
import { defaultBackend } from "./backend/choose.ts";
import { CpuBackend } from "./backend/cpu/cpu.ts";
import { WasmBackend } from "./backend/wasm/wasm.ts";
import { findAdapter, openGpu } from "./backend/webgpu/device.ts";
import { probeProducts } from "./backend/webgpu/probes.ts";
import type { MachineLimits } from "./plan/cost.ts";

export type { MachineLimits } from "./plan/cost.ts";

/** What this machine computes with, asked and measured without a model. */

/** Opens the kernels that compute where this backend, or none, is asked for. Throws KernelError and WasmError. */
async function openKernels(
  threads: number,
  backend: BackendName | undefined,
): Promise<CpuBackend | WasmBackend> {
  const kind = backend === "cpu" || backend === "wasm" ? backend : defaultBackend();
  return kind === "wasm" ? await WasmBackend.open({ threads }) : new CpuBackend({ threads });
}

/**
 * Names of the instruction sets that the CPU has and there are native kernels for, best first; the one of WebAssembly where that
 * computes. Throws KernelError and WasmError.
 */
export async function instructionSets(backend?: BackendName): Promise<string[]> {
  const kernels = await openKernels(1, backend);
  try {
    return kernels.info.name === "cpu" ? CpuBackend.instructionSets() : [kernels.info.isa];
  } finally {
    kernels.close();
  }
}

/** Takes about a second, all of those threads' cores, and 512 MiB for its time. Throws KernelError and WasmError. */
export async function measureLimits(threads: number, backend?: BackendName): Promise<MachineLimits> {
  const kernels = await openKernels(threads, backend);
  try {
    return await kernels.measureLimits();
  } finally {
    kernels.close();
  }
}

/** A GPU's adapter, as far as it was tried. */
export interface GpuReport {
  readonly name: string;
  /** It computes on the CPU. */
  readonly software: boolean;
  /** 16-bit floats, and they work. */
  readonly f16: boolean;
  /** Largest error of products in f32, relative to the sum of their magnitudes; NaN or Infinity where nothing is right. */
  readonly error: number;
}

/** Drivers that compute on the CPU, as their adapters are called. */
const SOFTWARE = /llvmpipe|lavapipe|softpipe|swiftshader|basic render/i;

/** Opens the GPU and has it compute a little. Undefined where there is no adapter; throws GpuError where it cannot be opened. */
export async function examineGpu(): Promise<GpuReport | undefined> {
  if (await findAdapter() === undefined) return undefined;
  const { device, name, kernels } = await openGpu();
  try {
    const error = await probeProducts(device);
    return { name, software: SOFTWARE.test(name), f16: kernels.f16, error };
  } finally {
    device.destroy();
  }
}
