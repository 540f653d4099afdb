import { assert, assertEquals } from "@std/assert";
import type { TensorType } from "../../../gguf/types.ts";
import { fullTier } from "../../../../testing/tier.ts";
import { GPU_TYPES, gpuFormat } from "./formats/registry.ts";
import { embedKernel, matMulKernels } from "./matmul.ts";
import { countedFrom } from "../device/pipelines.ts";
import { translate } from "./testing_shaders.ts";
import { ARITHMETICS } from "../../backend.ts";
import type { Kernel, MatMulSpec, Tuning } from "./types.ts";

const DEVICE = { f16: true };
const TUNED: Tuning = { rows: 8, lanes: 64 };

function kernels(): Kernel[] {
  const spec = (type: TensorType, rest: Partial<MatMulSpec> = {}): MatMulSpec => {
    return { type, arithmetic: "f32", columns: 768, epilogue: "store", bias: false, ...rest };
  };
  return [
    ...GPU_TYPES.flatMap((type) =>
      ARITHMETICS.flatMap((arithmetic) => matMulKernels(spec(type, { arithmetic }), DEVICE))
    ),
    ...GPU_TYPES.map((type) => embedKernel(type, 768)),
    ...matMulKernels(spec("Q4_0", { epilogue: "swiglu" }), DEVICE),
    ...matMulKernels(spec("Q4_0", { epilogue: "add" }), DEVICE),
    ...matMulKernels(spec("Q4_0", { bias: true }), DEVICE),
    ...matMulKernels(spec("Q6_K", { arithmetic: "f16" }), DEVICE, TUNED),
    ...matMulKernels(spec("F16", { columns: 100 }), DEVICE),
  ];
}

/** The accumulators: variables of block_dot's chains. */
const ACCUMULATORS = /metal::(half|float)4 c\d_\w* = /g;

fullTier.test("matrix shaders: Dawn accepts them, naga translates them to Metal, and they accumulate in their arithmetic's type", async () => {
  const all = kernels();
  const texts = await translate(new Map(all.map((kernel) => [kernel.key, countedFrom(kernel)])));
  for (const { key } of all) {
    const text = texts.get(key)!;
    const [kind, type, arithmetic] = key.split(" ");
    if (kind === "embed" || arithmetic === "f32") {
      // Halves of the file are loaded as halves and widened at once.
      assert(!/\bhalf\d?\b/.test(text.replaceAll("float2(as_type<half2>(", "")), `${key} computes in half`);
      if (kind === "embed") continue;
    }
    const half = arithmetic === "f16" && !gpuFormat(type as TensorType).unbounded;
    const found = new Set([...text.matchAll(ACCUMULATORS)].map((m) => m[1]));
    assertEquals(found, new Set([half ? "half" : "float"]), `${key}: accumulators`);
  }
});
