import { DeviceLoss } from "./device_loss.ts";
import { GpuError } from "../errors.ts";
import type { KernelDevice } from "../kernels/types.ts";
import { probeF16, probeSynchronousMap } from "./probes.ts";

/** An open GPU device and its probed properties. */
export interface Gpu {
  readonly device: GPUDevice;
  readonly loss: DeviceLoss;
  /** The adapter's name, such as "llvmpipe (LLVM 15.0.6, 256 bits)". */
  readonly name: string;
  readonly kernels: KernelDevice;
  /**
   * Whether a buffer can be mapped without waiting for an event. Reading back then takes microseconds;
   * polling for an event takes 10 ms.
   */
  readonly synchronousMap: boolean;
  readonly timestamps: boolean;
  /** Largest storage binding in bytes. */
  readonly bindingBytes: number;
  /** Maximum number of lanes in a workgroup. */
  readonly workgroupLanes: number;
}

/** Number of storage buffers that a kernel may use. Every adapter with compute shaders has them. */
const STORAGE_BUFFERS = 8;

/** Returns the best GPU adapter, or undefined if there is none. */
export async function findAdapter(): Promise<GPUAdapter | undefined> {
  const gpu = globalThis.navigator.gpu;
  return await gpu?.requestAdapter({ powerPreference: "high-performance" }) ?? undefined;
}

/** Opens the best adapter with all its features and limits, and probes it. Throws GpuError. */
export async function openGpu(): Promise<Gpu> {
  const adapter = await findAdapter();
  if (!adapter) {
    throw new GpuError([
      "Cannot use WebGPU: found no adapter. It needs a GPU with a Metal or Vulkan driver. " +
      "Install the driver, or use ",
      { backend: "cpu" },
    ]);
  }
  const device = await requestDevice(adapter);
  try {
    return await describe(adapter, device);
  } catch (error) {
    device.destroy();
    throw error;
  }
}

async function describe(adapter: GPUAdapter, device: GPUDevice): Promise<Gpu> {
  const has = (feature: string) => device.features.has(feature as GPUFeatureName);
  const loss = new DeviceLoss(device);
  const f16 = has("shader-f16") && await loss.or(probeF16(device));
  return {
    device,
    loss,
    name: adapter.info.description || adapter.info.device || adapter.info.vendor || "unnamed adapter",
    kernels: { f16 },
    synchronousMap: await loss.or(probeSynchronousMap(device)),
    timestamps: has("timestamp-query"),
    bindingBytes: Math.min(device.limits.maxStorageBufferBindingSize, device.limits.maxBufferSize),
    workgroupLanes: device.limits.maxComputeInvocationsPerWorkgroup,
  };
}

/**
 * Requests the device with the features that kernels use and the adapter's own limits. The default limit is 128 MiB per
 * binding.
 */
async function requestDevice(adapter: GPUAdapter): Promise<GPUDevice> {
  const { limits } = adapter;
  const wanted = ["shader-f16", "timestamp-query"].filter((f) => adapter.features.has(f as GPUFeatureName));
  const descriptor = {
    requiredFeatures: wanted as GPUFeatureName[],
    requiredLimits: {
      maxStorageBufferBindingSize: limits.maxStorageBufferBindingSize,
      maxBufferSize: limits.maxBufferSize,
      maxStorageBuffersPerShaderStage: Math.max(
        STORAGE_BUFFERS,
        Math.min(16, limits.maxStorageBuffersPerShaderStage),
      ),
      maxComputeWorkgroupStorageSize: limits.maxComputeWorkgroupStorageSize,
      maxComputeInvocationsPerWorkgroup: limits.maxComputeInvocationsPerWorkgroup,
      maxComputeWorkgroupSizeX: limits.maxComputeWorkgroupSizeX,
    },
  };
  try {
    return await adapter.requestDevice(descriptor);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new GpuError([`Cannot open the GPU: ${reason}; use `, { backend: "cpu" }], { cause });
  }
}
