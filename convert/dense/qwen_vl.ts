import type { Fields } from "../checkpoint/json.ts";
import { convertLlama, type LlamaTraits } from "./llama.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import { readSections } from "../rope_sections.ts";
import type { TensorList } from "../tensor_list.ts";

/** The text part of Qwen2-VL, Qwen2.5-VL or Qwen3-VL: the decoder's tensors, and how positions share its rotated pairs. */
export function convertQwenVl(
  config: Fields,
  list: TensorList,
  prefix: string,
  traits: LlamaTraits,
): ModelParts {
  return withSections(traits.architecture, convertLlama(config, list, prefix, traits));
}

/** The parts, and how positions share the rotated pairs. */
export function withSections(architecture: string, parts: ModelParts): ModelParts {
  const name = `${architecture}.rope.dimension_sections`;
  const sections = entry(name, "INT32", readSections(parts.decoder.rope));
  return { ...parts, entries: [...parts.entries, sections] };
}
