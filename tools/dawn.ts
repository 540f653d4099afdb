/**
 * Validates .wgsl files with Dawn, Chrome's WebGPU implementation, without a GPU. Each file is a compute shader with
 * one entry point. Prints the errors; the exit code is 1 when there are any. Usage: `deno run --lock=tests/deno.lock
 * -P=shaders tools/dawn.ts FILE...`.
 */
import { create } from "webgpu";

// The object stays referenced, because Dawn crashes once it is garbage-collected.
const gpu = create(["backend=null"]);
const adapter = await gpu.requestAdapter();
const device = await adapter!.requestDevice({ requiredFeatures: ["shader-f16"] });
let wrong = 0;
for (const file of Deno.args) {
  const code = Deno.readTextFileSync(file);
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code });
  device.createComputePipeline({ layout: "auto", compute: { module } });
  const { messages } = await module.getCompilationInfo();
  const problems = messages.map(({ type, lineNum, message }) => `${type} in line ${lineNum}: ${message}`);
  const error = await device.popErrorScope();
  if (error) problems.push(error.message);
  if (problems.length === 0) continue;
  wrong++;
  Deno.stdout.writeSync(new TextEncoder().encode(`${code.split("\n", 1)[0]}: ${problems.join("\n")}\n`));
}
// Dawn keeps the process alive, so it is ended.
Deno.exit(wrong > 0 ? 1 : 0);
