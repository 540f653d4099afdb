import type { Finding, Wanted, World } from "../types.ts";
import { reasonOf } from "../units.ts";

/** Relative error of products in f32 that only a broken driver exceeds. */
const MOST_ERROR = 1e-4;

/** The GPU's adapter, and whether it computes what the CPU does. It matters where the GPU is asked for. */
export async function checkGpu(
  world: Pick<World, "examineGpu">,
  { backend }: Pick<Wanted, "backend">,
): Promise<Finding> {
  const asked = backend === "webgpu";
  let gpu;
  try {
    gpu = await world.examineGpu();
  } catch (error) {
    return {
      status: asked ? "wrong" : "slow",
      found: reasonOf(error),
      advice: "update the GPU's driver, or use --backend cpu",
    };
  }
  if (gpu === undefined) {
    const found = "no adapter; the CPU computes";
    if (!asked) return { status: "ok", found };
    return { status: "wrong", found, advice: "install a Vulkan or Metal driver, or use --backend cpu" };
  }
  const { name, software, f16, error } = gpu;
  const figures = { name, software, f16, error };
  const found = `${name}${
    software ? ", a software adapter: the CPU computes, in the GPU's way" : ""
  }; products are ${
    error <= MOST_ERROR ? `right to ${error.toExponential(0)}` : `wrong by ${error.toExponential(0)}`
  }${f16 ? ", f16" : ""}`;
  // What is not a number is wrong too.
  if (!(error <= MOST_ERROR)) {
    const advice = "do not use --backend webgpu or auto here; update the GPU's driver";
    return { status: asked ? "wrong" : "slow", found, advice, figures };
  }
  if (software && (asked || backend === "auto")) {
    return { status: "slow", found, advice: "use --backend cpu, whose kernels are made for it", figures };
  }
  return { status: "ok", found, figures };
}
