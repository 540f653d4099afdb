import { quote } from "../../gguf/errors.ts";
import type { RopeConfig } from "../checkpoint.ts";

/** Returns how many rotated pairs take their position from time, height, width and none of them. In text these are equal. */
export function readSections({ fields, rotated }: RopeConfig): number[] {
  const pairs = rotated / 2;
  // Thirds, the first ones larger: 11, 11, 10 for Qwen3.5's 32.
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
