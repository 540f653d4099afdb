import { WordedError, type Wording } from "../engine/api/errors.ts";

/**
 * Thrown for a checkpoint that compy cannot convert and a file that cannot be written. The message names file
 * and tensor.
 */
export class ConvertError extends WordedError {
  override name = "ConvertError";
}

/** Refuses one file of a checkpoint. `field` is e.g. `tensor "lm_head.weight"` or `key "rope_theta"`. */
export function refuse(file: string, field: string | undefined, detail: string | Wording): never {
  const where = `Cannot convert ${[file, field].filter(Boolean).join(", ")}: `;
  throw new ConvertError(typeof detail === "string" ? where + detail : [where, ...detail]);
}
