import { ArchitectureKeys } from "../../gguf/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { GroupedHeads } from "./grouped_attention.ts";
import type { Rope } from "./rope.ts";

/** One layer in so many has no window, the last of them. */
const PERIOD = 4;

/** What a layer's heads see, and are turned by. */
export type Sight = Pick<GroupedHeads, "table" | "window">;

/** The keys of a file that must have a window. */
export function windowed({ file }: PlanBuilder): ArchitectureKeys {
  const keys = ArchitectureKeys.of(file.metadata);
  if (keys.window() === 0) keys.refuse("attention.sliding_window", "0", "at least 1");
  return keys;
}

/** Tokens that a row of each layer sees, its own among them; 0 is all. `pattern` is what counts where the file has no array. */
export function readWindows(
  keys: ArchitectureKeys,
  h: Hparams,
  layers: number,
  pattern: Parameters<ArchitectureKeys["windowLayers"]>[1] = { period: PERIOD },
): number[] {
  const window = keys.window();
  const base = keys.ropeBase(h.ropeFreqBase, "_swa");
  if (base !== h.ropeFreqBase) {
    keys.refuse("rope.freq_base_swa", String(base), `${h.ropeFreqBase}, as rope.freq_base is`);
  }
  return keys.windowLayers(layers, pattern).map((slides) => slides ? window : 0);
}

/**
 * Of layers that take no part in YaRN where they have a window. The key `magnitude` is the checkpoint's `attention_factor`, which is all that
 * cosine and sine are multiplied by, YaRN's own among it.
 */
export function windowedSights(b: PlanBuilder, h: Hparams, rope: Rope, magnitude: string): Sight[] {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const windows = readWindows(keys, h, h.blockCount);
  const angles = rope.angles();
  const full = ropeTable(b, { ...angles, magnitude: keys.scale(magnitude, angles.magnitude) });
  const near = keys.window() === 0 ? full : ropeTable(b, rope.angles({ scaled: false }));
  return windows.map((window) => ({ table: window ? near : full, window }));
}
