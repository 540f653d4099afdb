/** Runs single kernels on the machine's adapter, for tests and measurements. */
import type { TensorType } from "../../../gguf/types.ts";
import { packPlanes } from "./planes.ts";
import type { Kernel, KernelDevice, MatMulSpec } from "./types.ts";

export interface TestDevice {
  readonly device: GPUDevice;
  readonly kernels: KernelDevice;
}

/** Opens the adapter for tests. Without an adapter, or without f16, prints a message and returns undefined. */
export async function openTestDevice(): Promise<TestDevice | undefined> {
  const adapter = await globalThis.navigator.gpu?.requestAdapter();
  if (!adapter?.features.has("shader-f16")) {
    const found = adapter ? `adapter "${adapter.info.description}" has no shader-f16` : "there is no adapter";
    const advice = "install Mesa's software driver (Debian: mesa-vulkan-drivers) to run them";
    Deno.stderr.writeSync(new TextEncoder().encode(`WebGPU kernel tests are skipped: ${found}; ${advice}\n`));
    return undefined;
  }
  const requiredFeatures: GPUFeatureName[] = ["shader-f16"];
  const { maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX } = adapter.limits;
  const requiredLimits = { maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX };
  const device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
  // A software adapter's threads must not outlive the test file: they would race with the end of the process.
  addEventListener("unload", () => device.destroy());
  return { device, kernels: { f16: true } };
}

/** A matrix product to run in a test. */
export interface Product {
  readonly type: TensorType;
  /** Weight bytes as in a file, `rows` rows; with "swiglu" the gate's rows, then the up rows. */
  readonly weights: Uint8Array;
  readonly rows: number;
  readonly columns: number;
  readonly x: Float32Array; // [m, columns]
  readonly m: number;
  readonly bias?: Float32Array<ArrayBuffer>;
  /** The initial contents of y, [m, rows]; by default zeros. */
  readonly y?: Float32Array;
}

/** Runs a product on the GPU and returns y: [m, rows]. */
export async function multiply(
  { device }: TestDevice,
  kernel: Kernel,
  spec: MatMulSpec,
  product: Product,
): Promise<Float32Array> {
  const { rows, columns, m } = product;
  const [xStride, yStride] = [64 * Math.ceil(columns / 64), 64 * Math.ceil((rows + 3) / 64)];
  // Values beyond the matrix columns must not affect the product.
  const x = new Float32Array(m * xStride).fill(NaN);
  const y = new Float32Array(m * yStride);
  const offset = 3;
  for (let t = 0; t < m; t++) {
    x.set(product.x.subarray(t * columns, (t + 1) * columns), t * xStride);
    if (product.y) y.set(product.y.subarray(t * rows, (t + 1) * rows), t * yStride + offset);
  }
  const stacked = spec.epilogue === "swiglu" ? 2 * rows : rows;
  const planes = packPlanes(product.type, product.weights, stacked, columns);
  const op = new Uint32Array([columns, rows, xStride, yStride, offset, 0, 0, 0]);
  const result = upload(device, y, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC);
  const bindings: [number, GPUBuffer][] = [
    [0, upload(device, op, GPUBufferUsage.UNIFORM)],
    [1, upload(device, new Uint32Array([m, 0, 0, 0]), GPUBufferUsage.UNIFORM)],
    [2, upload(device, x, GPUBufferUsage.STORAGE)],
    [3, result],
    ...planes.map((plane, p): [number, GPUBuffer] => [4 + p, upload(device, plane, GPUBufferUsage.STORAGE)]),
  ];
  if (product.bias) {
    bindings.push([4 + planes.length, upload(device, product.bias, GPUBufferUsage.STORAGE)]);
  }
  await dispatch(device, kernel, kernel.workgroups(rows, m), bindings);
  const all = await read(device, result);
  for (const [, buffer] of bindings) buffer.destroy();
  const out = new Float32Array(m * rows);
  for (let t = 0; t < m; t++) {
    out.set(all.subarray(t * yStride + offset, t * yStride + offset + rows), t * rows);
  }
  return out;
}

/** Returns rows of a matrix by token id: [tokens, columns]. */
export async function embed(
  { device }: TestDevice,
  kernel: Kernel,
  { type, weights, rows, columns }: Pick<Product, "type" | "weights" | "rows" | "columns">,
  tokens: readonly number[],
): Promise<Float32Array> {
  const ids = Uint32Array.from(tokens.flatMap((id) => [id, 0, 0, 0]));
  const y = upload(
    device,
    new Float32Array(tokens.length * columns),
    GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC,
  );
  const bindings: [number, GPUBuffer][] = [
    [0, upload(device, new Uint32Array([columns, rows, 0, columns, 0, 0, 0, 0]), GPUBufferUsage.UNIFORM)],
    [1, upload(device, new Uint32Array([tokens.length, 0, 0, 0]), GPUBufferUsage.UNIFORM)],
    [2, upload(device, ids, GPUBufferUsage.STORAGE)],
    [3, y],
    ...packPlanes(type, weights, rows, columns).map((plane, p): [number, GPUBuffer] => [
      4 + p,
      upload(device, plane, GPUBufferUsage.STORAGE),
    ]),
  ];
  await dispatch(device, kernel, kernel.workgroups(rows, tokens.length), bindings);
  const out = await read(device, y);
  for (const [, buffer] of bindings) buffer.destroy();
  return out;
}

/** Returns a buffer that holds `data`. */
export function upload(device: GPUDevice, data: ArrayBufferView<ArrayBuffer>, usage: number): GPUBuffer {
  const size = Math.ceil(data.byteLength / 4) * 4;
  const buffer = device.createBuffer({ size, usage: usage | GPUBufferUsage.COPY_DST });
  device.queue.writeBuffer(buffer, 0, data);
  return buffer;
}

const pipelines = new WeakMap<GPUDevice, Map<string, GPUComputePipeline>>();

/** Runs a kernel once. Throws if the driver refuses the kernel. */
export async function dispatch(
  device: GPUDevice,
  { code, entryPoint, constants }: Pick<Kernel, "code" | "entryPoint" | "constants">,
  workgroups: readonly [number, number, number],
  bindings: readonly [number, GPUBuffer][],
): Promise<void> {
  const made = pipelines.get(device) ?? new Map<string, GPUComputePipeline>();
  pipelines.set(device, made);
  const key = code + JSON.stringify(constants);
  device.pushErrorScope("validation");
  const pipeline = made.get(key) ?? device.createComputePipeline({
    layout: "auto",
    compute: { module: device.createShaderModule({ code }), entryPoint, constants: { ...constants } },
  });
  made.set(key, pipeline);
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  const entries = bindings.map(([binding, buffer]) => ({ binding, resource: { buffer } }));
  pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(...workgroups);
  pass.end();
  device.queue.submit([encoder.finish()]);
  const error = await device.popErrorScope();
  if (error) throw new Error(`${error.message}\n${code}`);
}

/** Returns the contents of a buffer, which needs the usage COPY_SRC. */
export async function read(device: GPUDevice, buffer: GPUBuffer): Promise<Float32Array> {
  const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
  const target = device.createBuffer({ size: buffer.size, usage });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, target, 0, buffer.size);
  device.queue.submit([encoder.finish()]);
  await target.mapAsync(GPUMapMode.READ);
  const out = new Float32Array(target.getMappedRange().slice(0));
  target.destroy();
  return out;
}
