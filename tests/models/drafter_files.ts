import { readPlan } from "../../engine/architectures/registry.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import { openDrafter } from "../../engine/load/drafters/open.ts";
import type { OpenedDrafter } from "../../engine/load/drafters/types.ts";
import type { CompileOptions } from "../../engine/backend/backend.ts";
import type { Plan } from "../../engine/plan/plan.ts";
import { type CpuModelOptions, KernelModel } from "../../testing/kernel_model.ts";

/** A seeded model on the kernels, with its drafter. */
export interface DraftingModel {
  readonly model: KernelModel;
  readonly plan: Plan;
  readonly opened: OpenedDrafter;
}

/** Calls `use` with the paths of two files, which are removed afterwards. */
export async function withFiles<T>(
  model: Uint8Array,
  drafter: Uint8Array,
  use: (model: string, drafter: string) => Promise<T>,
): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  const paths = ["model", "drafter"].map((name) => `${folder}/${name}.gguf`);
  try {
    await Deno.writeFile(paths[0], model);
    await Deno.writeFile(paths[1], drafter);
    return await use(paths[0], paths[1]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Loads a model with a drafter, from the bytes of their files. */
export function loadWithDrafter(
  model: Uint8Array,
  drafter: Uint8Array,
  size: CompileOptions | ((plan: Plan) => CompileOptions),
  cpu: CpuModelOptions = {},
): Promise<DraftingModel> {
  return withFiles(model, drafter, async (path, drafterPath) => {
    const opened = (await openDrafter(drafterPath, await openGguf(path)))!;
    const plan = await readPlan(opened.joined, undefined, { drafter: opened.description });
    const compile = typeof size === "function" ? size(plan) : size;
    return { model: await KernelModel.open(opened.joined, plan, compile, cpu), plan, opened };
  });
}
