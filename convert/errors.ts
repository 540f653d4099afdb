/** A checkpoint that compy does not convert, or a file that cannot be written; the message names file and tensor. */
export class ConvertError extends Error {
  override name = "ConvertError";
}

/** Refuses one file of a checkpoint. `field` is e.g. `tensor "lm_head.weight"` or `key "rope_theta"`. */
export function refuse(file: string, field: string | undefined, detail: string): never {
  throw new ConvertError(`Cannot convert ${[file, field].filter(Boolean).join(", ")}: ${detail}`);
}
