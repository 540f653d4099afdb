import type { DeviceLoss } from "./device_loss.ts";
import { unsupportedOnGpu } from "../errors.ts";
import type { Kernel } from "../kernels/types.ts";

/** Binding number of the first workgroup's id, after all bindings of the kernels. */
export const FIRST_GROUP_BINDING = 15;

const GROUP = "@builtin(workgroup_id) group: vec3<u32>";

/**
 * Returns a kernel whose workgroup ids start at a given id, so that a dispatch can be cut into several. Kernels read
 * the id as `group` and need no change.
 */
export function countedFrom({ key, code, entryPoint }: Kernel): string {
  const [before, after, more] = code.split(GROUP);
  const body = after?.indexOf("{") ?? -1;
  if (body < 0 || more !== undefined) {
    throw new Error(`The kernel "${key}" must have one "${GROUP}", of ${entryPoint}`);
  }
  return `${before}@builtin(workgroup_id) group_from_first: vec3<u32>${after.slice(0, body + 1)}
  let group = group_from_first + first_group.xyz;${after.slice(body + 1)}
@group(0) @binding(${FIRST_GROUP_BINDING}) var<uniform> first_group: vec4<u32>;
`;
}

/** Compiled GPU kernels by key. */
export class Pipelines {
  readonly #pipelines = new Map<string, GPUComputePipeline>();

  constructor(private readonly device: GPUDevice, private readonly loss: DeviceLoss) {}

  get(kernel: Kernel): GPUComputePipeline {
    const known = this.#pipelines.get(kernel.key);
    if (known) return known;
    const module = this.device.createShaderModule({ label: kernel.key, code: countedFrom(kernel) });
    const { entryPoint, constants } = kernel;
    const compute = { module, entryPoint, constants: { ...constants } };
    const pipeline = this.device.createComputePipeline({ label: kernel.key, layout: "auto", compute });
    this.#pipelines.set(kernel.key, pipeline);
    return pipeline;
  }

  /** Compiles kernels before their first use. Throws GpuError if the driver refuses one. */
  async compile(kernels: readonly Kernel[]): Promise<void> {
    for (const kernel of kernels) {
      if (this.#pipelines.has(kernel.key)) continue;
      this.device.pushErrorScope("validation");
      this.get(kernel);
      const error = await this.loss.or(this.device.popErrorScope());
      if (!error) continue;
      this.#pipelines.delete(kernel.key);
      throw unsupportedOnGpu(`The GPU refused the kernel "${kernel.key}": ${error.message}`);
    }
  }
}
