/**
 * Probes of GPU drivers, because drivers do not always do what they report. Each probe runs a short kernel and checks
 * the numbers.
 */

/** Runs a kernel of one workgroup over one buffer of words. Returns undefined if the driver refuses the kernel. */
async function run(device: GPUDevice, code: string, words: Uint32Array<ArrayBuffer>) {
  device.pushErrorScope("validation");
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const data = device.createBuffer({ size: words.byteLength, usage });
  const back = device.createBuffer({
    size: words.byteLength,
    usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
  });
  try {
    device.queue.writeBuffer(data, 0, words);
    const module = device.createShaderModule({ code });
    const pipeline = device.createComputePipeline({
      layout: "auto",
      compute: { module, entryPoint: "main" },
    });
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(
      0,
      device.createBindGroup({
        layout: pipeline.getBindGroupLayout(0),
        entries: [{ binding: 0, resource: { buffer: data } }],
      }),
    );
    pass.dispatchWorkgroups(1);
    pass.end();
    encoder.copyBufferToBuffer(data, 0, back, 0, words.byteLength);
    device.queue.submit([encoder.finish()]);
    if (await device.popErrorScope()) return undefined;
    await back.mapAsync(GPUMapMode.READ);
    return new Uint32Array(back.getMappedRange().slice(0));
  } finally {
    data.destroy();
    back.destroy();
  }
}

/** Checks eight exact products and sums in f16: some drivers compiled them to zeros. */
export async function probeF16(device: GPUDevice): Promise<boolean> {
  const code = `enable f16;
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
  let x = f16(data[i]);
  let y = fma(vec4<f16>(x), vec4<f16>(0.5h, 2.0h, 0.25h, 1.0h), vec4<f16>(1.0h));
  data[i] = u32(f32(y.x + y.y + y.z + y.w) * 4.0);
}`;
  const found = await run(device, code, Uint32Array.from({ length: 8 }, (_, i) => i));
  return found !== undefined && found.every((value, i) => value === 15 * i + 16);
}

/**
 * Returns whether a buffer that is mapped and read without awaiting holds the data of the preceding work. Deno's
 * implementation finishes the work when it maps the buffer. Other implementations throw; reads then wait for the event.
 */
export async function probeSynchronousMap(device: GPUDevice): Promise<boolean> {
  const size = 256;
  const source = device.createBuffer({ size, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
  const back = device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const copy = (value: number) => {
    device.queue.writeBuffer(source, 0, new Uint32Array(size / 4).fill(value));
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(source, 0, back, 0, size);
    device.queue.submit([encoder.finish()]);
  };
  try {
    copy(1);
    await back.mapAsync(GPUMapMode.READ);
    back.unmap();
    for (let value = 2; value < 5; value++) {
      copy(value);
      const mapped = back.mapAsync(GPUMapMode.READ);
      mapped.catch(() => {}); // getMappedRange reports this failure
      const right = new Uint32Array(back.getMappedRange()).every((found) => found === value);
      back.unmap();
      if (!right) return false;
    }
    return true;
  } catch {
    return false;
  } finally {
    source.destroy();
    back.destroy();
  }
}

/** Number of rows of the product that is compared with the CPU's. */
const PRODUCT_ROWS = 64;
const PRODUCT_COLUMNS = 256;

/**
 * Returns the error of a matrix-vector product in f32 against f64: the largest difference over the sum of absolute
 * products. Infinity if the driver refuses the kernel, NaN if the kernel computes NaN.
 */
export async function probeProducts(device: GPUDevice): Promise<number> {
  const code = `@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(${PRODUCT_ROWS}) fn main(@builtin(local_invocation_index) i: u32) {
  let row = ${PRODUCT_COLUMNS}u * (i + 1u);
  var sum = 0.0;
  for (var k = 0u; k < ${PRODUCT_COLUMNS}u; k++) {
    sum += bitcast<f32>(data[k]) * bitcast<f32>(data[row + k]);
  }
  data[row] = bitcast<u32>(sum);
}`;
  // The vector comes first, then the matrix rows. Thirds have no finite binary expansion, so rounding shows.
  const values = Float32Array.from(
    { length: PRODUCT_COLUMNS * (PRODUCT_ROWS + 1) },
    (_, i) => ((i * 7919) % 257 - 128) / 3,
  );
  const found = await run(device, code, new Uint32Array(values.buffer));
  return found === undefined ? Infinity : productError(values, new Float32Array(found.buffer));
}

/**
 * Returns the relative error of matrix-vector products. `values` holds the vector, then the rows; `found` holds each
 * product at its row's start.
 */
export function productError(values: Float32Array, found: Float32Array): number {
  let worst = 0;
  for (let row = PRODUCT_COLUMNS; row < values.length; row += PRODUCT_COLUMNS) {
    let [sum, magnitude] = [0, 0];
    for (let k = 0; k < PRODUCT_COLUMNS; k++) {
      sum += values[k] * values[row + k];
      magnitude += Math.abs(values[k] * values[row + k]);
    }
    worst = Math.max(worst, Math.abs(found[row] - sum) / magnitude);
  }
  return worst;
}
