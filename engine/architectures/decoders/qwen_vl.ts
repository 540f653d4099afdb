import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Architecture } from "../architecture.ts";
import { QWEN2, QWEN3 } from "./llama.ts";
import { QWEN3MOE } from "./qwen3moe.ts";

/**
 * Returns the decoder of a vision model. Its rotated pairs take positions from time, height and width, which
 * are equal in text. A file with a fourth section is refused: text has no position for it.
 */
function textPart(decoder: Architecture): Architecture {
  return {
    ...decoder,
    build(b, h, rope) {
      const keys = ArchitectureKeys.of(b.file.metadata);
      const sections = keys.metadata.getNumbers(keys.name("rope.dimension_sections")) ?? [];
      if (sections.length > 3 && sections[3] !== 0) {
        keys.refuse(
          "rope.dimension_sections",
          Array.from(sections).join(", "),
          "three sections, and 0 for the fourth",
        );
      }
      return decoder.build(b, h, rope);
    },
  };
}

/** Qwen2-VL and Qwen2.5-VL. Source: "Qwen2-VL" (arXiv 2409.12191). */
export const QWEN2VL = textPart(QWEN2);
/** Qwen3-VL. Pairs after the last section use time's position. Source: "Qwen3-VL" (arXiv 2511.21631). */
export const QWEN3VL = textPart(QWEN3);
export const QWEN3VLMOE = textPart(QWEN3MOE);
