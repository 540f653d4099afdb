import { commandLine } from "../../cli/command_line.ts";
import { CpuBackend } from "../../engine/backend/cpu/cpu.ts";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";

/*
 * A command with a backend that fails on demand: `failing_backend.ts CONTROL COMMAND options…`. The file CONTROL lists the
 * failing steps: `at`, counted from 1, and the next ones until there were `now` failures. A CPU step throws an error; a GPU step loses
 * its device.
 */
const [control, ...args] = Deno.args;
let steps = 0;
let failures = 0;

/** Whether the next step must fail. */
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
