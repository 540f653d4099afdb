import { GpuError } from "./device.ts";
import type { Kernel } from "./kernels/types.ts";

/** Compiled kernels, one of each key. */
export class Pipelines {
  readonly #pipelines = new Map<string, GPUComputePipeline>();

  constructor(private readonly device: GPUDevice) {}

  get(kernel: Kernel): GPUComputePipeline {
    const known = this.#pipelines.get(kernel.key);
    if (known) return known;
    const module = this.device.createShaderModule({ label: kernel.key, code: kernel.code });
    const { entryPoint, constants } = kernel;
    const compute = { module, entryPoint, constants: { ...constants } };
    const pipeline = this.device.createComputePipeline({ label: kernel.key, layout: "auto", compute });
    this.#pipelines.set(kernel.key, pipeline);
    return pipeline;
  }

  /** Compiles kernels ahead of their use. Throws GpuError where one is refused. */
  async compile(kernels: readonly Kernel[]): Promise<void> {
    for (const kernel of kernels) {
      if (this.#pipelines.has(kernel.key)) continue;
      this.device.pushErrorScope("validation");
      this.get(kernel);
      const error = await this.device.popErrorScope();
      if (!error) continue;
      this.#pipelines.delete(kernel.key);
      throw new GpuError(`The GPU refused the kernel "${kernel.key}": ${error.message}; use --backend cpu`);
    }
  }
}
