import { quote } from "../../gguf/errors.ts";
import type { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { RopeConfig } from "../checkpoint.ts";

/**
 * Returns how many rotated pairs take their position from time, height, width and none of them. For text, time, height
 * and width are equal.
 */
export function readSections({ fields, rotated }: RopeConfig): number[] {
  const pairs = rotated / 2;
  // Three nearly equal sections, the first ones larger: 11, 11, 10 for Qwen3.5's 32 pairs.
  const thirds = [Math.ceil(pairs / 3), Math.ceil((pairs - 1) / 3), Math.floor(pairs / 3)];
  const sections: unknown = fields.get("mrope_section") ?? thirds;
  if (!isSections(sections, pairs)) {
    return fields.refuse(
      "mrope_section",
      quote(JSON.stringify(sections)),
      `three numbers that add up to ${pairs}`,
    );
  }
  return [...sections, 0];
}

function isSections(value: unknown, pairs: number): value is number[] {
  return Array.isArray(value) && value.length === 3 && value.every((n) => Number.isInteger(n) && n >= 0) &&
    value.reduce((a, b) => a + b, 0) === pairs;
}

/**
 * Refuses vision models: their rotated pairs take positions from time, height and width, and files order them
 * differently.
 */
export function refuseSections(keys: ArchitectureKeys): void {
  const name = "rope.dimension_sections";
  const sections = Array.from(keys.metadata.getNumbers(keys.name(name)) ?? []);
  if (sections.some((section) => section !== 0)) keys.refuse(name, sections.join(", "), "left out");
}
