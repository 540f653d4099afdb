import type { Finding, Wanted, World } from "../types.ts";
import { reasonOf } from "../units.ts";

/** Relative error of f32 products that only a broken driver exceeds. */
const MOST_ERROR = 1e-4;

/** Checks the GPU's adapter, and that its results match the CPU's. Fails only if the GPU is wanted. */
export async function checkGpu(
  world: Pick<World, "examineGpu">,
  { backend, words }: Pick<Wanted, "backend" | "words">,
): Promise<Finding> {
  const asked = backend === "webgpu";
  let gpu;
  try {
    gpu = await world.examineGpu();
  } catch (error) {
    return {
      status: asked ? "wrong" : "slow",
      found: reasonOf(error, words),
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
  // The negated comparison also catches NaN.
  if (!(error <= MOST_ERROR)) {
    const advice = "do not use --backend webgpu or auto here; update the GPU's driver";
    return { status: asked ? "wrong" : "slow", found, advice, figures };
  }
  if (software && (asked || backend === "auto")) {
    return { status: "slow", found, advice: "use --backend cpu, whose kernels are made for it", figures };
  }
  return { status: "ok", found, figures };
}
