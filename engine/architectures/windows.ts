import type { ArchitectureKeys } from "../gguf/architecture_keys.ts";
import type { Hparams } from "../gguf/hparams.ts";

/** Where files do not say it, one layer in so many has no window, the last of them. */
const PERIOD = 4;

/**
 * Tokens that a row of each layer sees, its own among them; 0 is all. For models whose rotary positions have the same base with a
 * window and without.
 */
export function readWindows(keys: ArchitectureKeys, h: Hparams, layers: number): number[] {
  const window = keys.window();
  const base = keys.ropeBase(h.ropeFreqBase, "_swa");
  if (base !== h.ropeFreqBase) {
    keys.refuse("rope.freq_base_swa", String(base), `${h.ropeFreqBase}, as rope.freq_base is`);
  }
  return keys.windowLayers(layers, { period: PERIOD }).map((slides) => slides ? window : 0);
}
