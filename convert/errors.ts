import { WordedError, type Wording } from "../engine/api/errors.ts";

/** A checkpoint that compy does not convert, or a file that cannot be written; the message names file and tensor. */
export class ConvertError extends WordedError {
  override name = "ConvertError";
}

/** Refuses one file of a checkpoint. `field` is e.g. `tensor "lm_head.weight"` or `key "rope_theta"`. */
export function refuse(file: string, field: string | undefined, detail: string | Wording): never {
  const where = `Cannot convert ${[file, field].filter(Boolean).join(", ")}: `;
  throw new ConvertError(typeof detail === "string" ? where + detail : [where, ...detail]);
}
