import { commandLine } from "../cli/command_line.ts";
import { CpuBackend } from "../engine/backend/cpu/cpu.ts";
import { WebGpuBackend } from "../engine/backend/webgpu/webgpu.ts";

/*
 * `serve` whose backend fails when a test wants it: `failing_serve.ts CONTROL options…`. The file CONTROL holds how many
 * steps are to fail from now on, all in all: of the CPU by an error, of a GPU by the loss of its device.
 */
const [control, ...args] = Deno.args;
let failures = 0;

/** Whether the next step is to fail. */
function fails(): boolean {
  if (failures >= Number(Deno.readTextFileSync(control))) return false;
  failures++;
  return true;
}

const cpuStep = CpuBackend.prototype.step;
CpuBackend.prototype.step = function (input) {
  return fails() ? Promise.reject(new Error("injected by a test")) : cpuStep.call(this, input);
};

let device: GPUDevice;
const requestDevice = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (descriptor) {
  return device = await requestDevice.call(this, descriptor);
};
const { step, decode } = WebGpuBackend.prototype;
WebGpuBackend.prototype.step = function (input) {
  if (fails()) device.destroy();
  return step.call(this, input);
};
WebGpuBackend.prototype.decode = function (input, steps) {
  if (fails()) device.destroy();
  return decode.call(this, input, steps);
};

Deno.exit(await commandLine(["serve", ...args]));
