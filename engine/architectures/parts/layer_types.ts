import type { Config } from "../checkpoint.ts";

/**
 * Returns which layers have a window. Without `layer_types` in config.json, `usual` decides; without both, throws
 * ConvertError.
 */
export function readSlidingLayers(
  config: Config,
  layers: number,
  usual?: (layer: number) => boolean,
): boolean[] {
  const types = config.get("layer_types");
  if (types === undefined && usual) return Array.from({ length: layers }, (_, layer) => usual(layer));
  const isKind = (type: unknown) => type === "full_attention" || type === "sliding_attention";
  if (Array.isArray(types) && types.length === layers && types.every(isKind)) {
    return types.map((type) => type === "sliding_attention");
  }
  const allowed = `"full_attention" or "sliding_attention" for each of the ${layers} layers`;
  return config.refuseValue("layer_types", allowed);
}
