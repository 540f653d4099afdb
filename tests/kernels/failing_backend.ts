import { commandLine } from "../../cli/command_line.ts";
import { CpuBackend } from "../../engine/backend/cpu/cpu.ts";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";

/*
 * A command whose backend fails when a test wants it: `failing_backend.ts CONTROL COMMAND options…`. The file CONTROL says
 * which steps fail, of the CPU by an error, of a GPU by the loss of its device: `at`, counted from 1, and the next ones
 * until there were `now` failures.
 */
const [control, ...args] = Deno.args;
let steps = 0;
let failures = 0;

/** Whether the next step is to fail. */
function fails(): boolean {
  const { now, at } = JSON.parse(Deno.readTextFileSync(control)) as { now: number; at: number[] };
  steps++;
  if (!at.includes(steps) && failures >= now) return false;
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

Deno.exit(await commandLine(args));
