/** Decoders that read images: rows of a vision tower replace the embeddings of image tokens. */
import type { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { addRows, replaceRows } from "../../plan/ops/given.ts";

/** If the plan takes images, replaces the embeddings of images' tokens by the images' rows. */
export function placeImages(b: PlanBuilder, x: Value): void {
  const width = imageColumns(b, x);
  if (width > 0) replaceRows(b, x, { width, first: 0 });
}

/** Adds the images' rows for a layer to the layer's output (deepstack). Source: "Qwen3-VL" (arXiv 2511.21631). */
export function deepenImages(b: PlanBuilder, x: Value, layer: number): void {
  const first = (layer + 1) * x.columns;
  const width = imageColumns(b, x);
  if (first < width) addRows(b, x, { width, first });
}

function imageColumns({ images }: PlanBuilder, { columns }: Value): number {
  return images ? (1 + images.deepstack) * columns : 0;
}

/**
 * Returns the axis of each rotated pair. From the first pair on, pairs of height and of width take turns with pairs of
 * time. Source: "Qwen3-VL" (arXiv 2511.21631).
 */
export function imageAxes(keys: ArchitectureKeys, pairs: number): Uint8Array {
  const name = "rope.dimension_sections";
  const sections = Array.from(keys.metadata.getNumbers(keys.name(name)) ?? []);
  if (sections.length < 3 || sections.some((n) => !Number.isInteger(n) || n < 0 || n > pairs)) {
    keys.refuse(name, sections.join(", "), `three sections of at most ${pairs} pairs, to take images`);
  }
  return Uint8Array.from({ length: pairs }, (_, i) => i < 3 * sections[i % 3] ? i % 3 : 0);
}
