import { commandLine } from "../cli/command_line.ts";
import { CpuBackend } from "../engine/backend/cpu/cpu.ts";

/*
 * `serve` whose kernels fail when a test wants it: `failing_serve.ts CONTROL options…`. The file CONTROL holds how many
 * steps are to fail from now on, all in all.
 */
const [control, ...args] = Deno.args;
const step = CpuBackend.prototype.step;
let failures = 0;
CpuBackend.prototype.step = function (input) {
  if (failures >= Number(Deno.readTextFileSync(control))) return step.call(this, input);
  failures++;
  return Promise.reject(new Error("injected by a test"));
};

Deno.exit(await commandLine(["serve", ...args]));
