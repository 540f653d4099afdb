import { type Fields, inWords } from "./checkpoint/json.ts";

/** Which layers have a window. A file that does not say it is refused, or `usual` tells of each layer. */
export function readSlidingLayers(
  config: Fields,
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
  return config.refuse("layer_types", inWords(types), allowed);
}
