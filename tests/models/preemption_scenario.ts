import { blocksOfSequence } from "../../engine/cache/kv_blocks.ts";
import { loadEngine, measureModel } from "../../engine/load/load.ts";
import { engineOver, FakeBackend, type FakeBackendOptions, startEngine } from "../../testing/engine.ts";
import { DrawingBackend } from "../../testing/draws.ts";
import { type KvType } from "../../engine/mod.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { HYBRID_LAYERS, mixedFile, mixedPlan, mixedPlanOf } from "../../testing/mixed_model.ts";
import { compareCrowd, type Crowd } from "./preemption.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";

/**
 * The preemption campaigns (`deno task preemption --requests 1000 --chats 64 --model FILE`). The suite runs a few requests of each. Stops at
 * the first answer that differs from the answer alone.
 */

type Kind = new (options: FakeBackendOptions) => FakeBackend;

export interface StandIn {
  readonly name: string;
  readonly kind: Kind;
  readonly stateSlots?: number;
  readonly kvWindows?: readonly number[];
  /** Rows per step; with few rows a sequence with windows needs few blocks. */
  readonly maxRows?: number;
}

export const STAND_INS: readonly StandIn[] = [
  { name: "a dense model", kind: FakeBackend },
  { name: "a hybrid", kind: FakeBackend, stateSlots: 30 },
  { name: "a hybrid with one snapshot", kind: FakeBackend, stateSlots: 13 },
  { name: "several steps at once", kind: DrawingBackend },
  { name: "a hybrid, several steps at once", kind: DrawingBackend, stateSlots: 16 },
  { name: "layers with windows", kind: FakeBackend, kvWindows: [40, 3, 100], maxRows: 20 },
  { name: "a hybrid with windows", kind: FakeBackend, stateSlots: 14, kvWindows: [64, 0], maxRows: 20 },
  { name: "windows, several steps at once", kind: DrawingBackend, kvWindows: [33], maxRows: 20 },
];

export const KERNEL_MODELS = ["llama", "qwen3moe", "qwen35", "lfm2"] as const;
const CONTEXT = 256;
export const PARALLEL = 12;

/** Returns the number of preemptions on a stand-in model. */
export async function onStandIn(
  { kind, stateSlots, kvWindows = [], maxRows = 64 }: StandIn,
  crowd: Crowd,
): Promise<number> {
  const kvBlocks = blocksOfSequence({ windows: kvWindows, maxRows }, CONTEXT);
  const sizes = { kvBlocks, maxRows, parallel: PARALLEL, queue: crowd.company };
  const limits = { stateSlots, kvWindows, ...sizes };
  const { engine } = startEngine(limits, CONTEXT, kind);
  try {
    return await compareCrowd(engine, engine, crowd);
  } finally {
    await engine.close();
  }
}

/** Bytes of a KV cache for exactly one context of this many tokens. */
export async function bytesOfContext(model: string, kvType: KvType, tokens: number): Promise<number> {
  return (await measureModel({ model, kvType, contextLength: tokens, parallel: 1 })).memory.kv;
}

/** Returns the number of preemptions with the kernels or the GPU, on a small model. */
export async function onKernels(
  architecture: Architecture,
  kvType: KvType,
  crowd: Crowd,
  { backend, layers = 4 }: { readonly backend?: "webgpu"; readonly layers?: number } = {},
): Promise<number> {
  const model = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(model, synthesize({ architecture, seed: 3, types: ["Q8_0"], layers }));
    const kvBytes = await bytesOfContext(model, kvType, CONTEXT);
    const options = {
      model,
      backend,
      kvType,
      contextLength: CONTEXT,
      parallel: PARALLEL,
      kvBytes,
      threads: 1,
    };
    // Draft lengths depend on time, and so does the number of preemptions. tests/models/speculation_test.ts tests preemption with drafts.
    const { engine } = await loadEngine({ ...options, queue: crowd.company, speculate: "off" });
    try {
      return await compareCrowd(engine, engine, crowd);
    } finally {
      await engine.close();
    }
  } finally {
    await Deno.remove(model);
  }
}

/** Returns the number of preemptions on an artificial model with every kind of layer. */
export async function onMixedKernels(kvType: KvType, maxRows: number, crowd: Crowd): Promise<number> {
  const plan = await mixedPlanOf(HYBRID_LAYERS);
  const kvWindows = plan.kv.windows.slice(1);
  const kvBlocks = blocksOfSequence({ windows: kvWindows, maxRows }, CONTEXT);
  const sizes = { kvBlocks, stateSlots: PARALLEL + 3, maxRows, maxLogitRows: PARALLEL };
  const { bytes } = mixedFile(HYBRID_LAYERS);
  const { backend } = await KernelModel.loadAs(mixedPlan(HYBRID_LAYERS), bytes, sizes, {
    kvType,
    threads: 1,
  });
  const limits = { ...sizes, kvWindows, parallel: PARALLEL, queue: crowd.company };
  const engine = engineOver(backend, limits, CONTEXT, plan.vocabSize);
  try {
    return await compareCrowd(engine, engine, crowd);
  } finally {
    await engine.close();
  }
}
