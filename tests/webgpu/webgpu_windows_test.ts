/**
 * Layers with sliding windows beside one without, on the GPU: against float64, and bit for bit however a
 * prompt is cut.
 */
import { assert, assertEquals } from "@std/assert";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { KernelModel, type Run, shuffledBlocks } from "../../testing/kernel_model.ts";
import { F16 } from "../../testing/kv_rounding.ts";
import {
  distance,
  exactLogits,
  LAYERS,
  mixedFile,
  mixedPlan,
  VOCABULARY,
} from "../../testing/mixed_model.ts";
import { Random, seedOf } from "../../testing/random.ts";

/** Windows of 5 and of 140 tokens, and no window. No layer reads another layer's cache. */
const WINDOWED = LAYERS.slice(0, 3);
const { bytes, values } = mixedFile(WINDOWED);
const LIMITS = { kvBlocks: 40, maxRows: 256, maxLogitRows: 4 };
const WANTED = [{ candidates: 1, probe: Array.from({ length: VOCABULARY }, (_, i) => i) }];

function prompt(length: number): number[] {
  const random = new Random(seedOf("windows on the GPU"));
  return Array.from({ length }, () => random.below(VOCABULARY));
}

gpuTest(
  "sliding windows: logits match float64, and a prompt in pieces beside another gives the same bits",
  async () => {
    using gpu = await KernelModel.loadAs(mixedPlan(WINDOWED), bytes, LIMITS, await WebGpuBackend.open());
    const tokens = prompt(170);
    const blockTable = shuffledBlocks(0, 6);
    const last = async (runs: Run[]) => {
      const answers = await gpu.step(runs.map((run) => ({ ...run, wanted: WANTED })));
      return answers[0][0].probed;
    };
    const whole = await last([{ tokens, blockTable }]);
    const error = distance(whole, exactLogits(values, tokens, WINDOWED, F16).at(-1)!);
    assert(error < 1e-4, `error ${error}`);

    const other = { tokens: prompt(3), blockTable: shuffledBlocks(6, 6) };
    const cuts = [0, 3, 60, 61, 169, 170];
    let pieces = whole;
    for (const [i, to] of cuts.slice(1).entries()) {
      const run = { tokens: tokens.slice(cuts[i], to), cached: cuts[i], blockTable };
      pieces = await last(i === 2 ? [run] : [run, other]);
    }
    assertEquals(pieces, whole);
  },
);
