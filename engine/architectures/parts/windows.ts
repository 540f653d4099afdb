import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { GroupedHeads } from "./grouped_attention.ts";
import type { Rope } from "./rope.ts";

/** Layers per period of the window pattern. The last layer of a period has no window. */
const PERIOD = 4;

/** Window, rotary table and other options of a layer's heads, where layers differ. */
export type LayerAttention = Partial<
  Pick<
    GroupedHeads,
    "table" | "rotated" | "window" | "chunked" | "chooseFor" | "sinks" | "temperature" | "unweightedNorms"
  >
>;

/** Returns the file's keys. Throws GgufError if the file has no window size. */
export function windowed({ file }: PlanBuilder): ArchitectureKeys {
  const keys = ArchitectureKeys.of(file.metadata);
  if (keys.window() === 0) keys.refuse("attention.sliding_window", "0", "at least 1");
  return keys;
}

/**
 * Returns each layer's window in tokens, including the row itself; 0: none. `pattern` applies if the file has no array.
 */
export function readWindows(
  keys: ArchitectureKeys,
  h: Hparams,
  layers: number,
  pattern: Parameters<ArchitectureKeys["windowLayers"]>[1] = { period: PERIOD },
): number[] {
  const base = keys.ropeBase(h.ropeFreqBase, "_swa");
  if (base !== h.ropeFreqBase) {
    keys.refuse("rope.freq_base_swa", String(base), `${h.ropeFreqBase}, as rope.freq_base is`);
  }
  return windowsOf(keys, layers, pattern);
}

/** Returns each layer's window as `readWindows` does. Layers with a window may have their own rotary base. */
export function windowsOf(
  keys: ArchitectureKeys,
  layers: number,
  pattern: Parameters<ArchitectureKeys["windowLayers"]>[1] = { period: PERIOD },
): number[] {
  const window = keys.window();
  return keys.windowLayers(layers, pattern).map((slides) => slides ? window : 0);
}

/**
 * Returns each layer's window and table; layers with a window do not use YaRN. The key `magnitude` is the checkpoint's
 * `attention_factor`: the whole factor on cosine and sine, including YaRN's.
 */
export function windowedLayers(b: PlanBuilder, h: Hparams, rope: Rope, magnitude: string): LayerAttention[] {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const windows = readWindows(keys, h, h.blockCount);
  const angles = rope.angles();
  const full = ropeTable(b, { ...angles, magnitude: keys.scale(magnitude, angles.magnitude) });
  const near = keys.window() === 0 ? full : ropeTable(b, rope.angles({ scaled: false }));
  return windows.map((window) => ({ table: window ? near : full, window }));
}
