import { WordedError, type Wording } from "../api/errors.ts";

/** The kind of fault in a GGUF file. */
export type GgufErrorCode =
  | "GGUF_MAGIC"
  | "GGUF_VERSION"
  | "GGUF_ENDIAN"
  | "GGUF_COUNT"
  | "GGUF_STRING"
  | "GGUF_KV_TYPE"
  | "GGUF_ARRAY"
  | "GGUF_DUPLICATE"
  | "GGUF_ALIGN"
  | "GGUF_SHAPE"
  | "GGUF_TENSOR_TYPE"
  | "GGUF_OFFSET"
  | "GGUF_TRUNCATED"
  | "GGUF_VOCAB"
  | "GGUF_HPARAM"
  | "GGUF_DATA"
  | "GGUF_SPLIT";

/**
 * Place of a fault: `byte` counts from the start of the file; `field` is for example `tensor
 * "output.weight"`.
 */
export interface GgufErrorPlace {
  readonly byte?: number;
  readonly field?: string;
}

/**
 * Error for a GGUF file that compy refuses. Example message: `GGUF_OFFSET at byte 1234, tensor
 * "output.weight": the offset must be a multiple of 32 (the alignment) below 2^53 (got 33)`.
 */
export class GgufError extends WordedError {
  override name = "GgufError";
  readonly byte: number | undefined;
  readonly field: string | undefined;

  constructor(readonly code: GgufErrorCode, detail: string | Wording, place: GgufErrorPlace = {}) {
    const parts = [];
    if (place.byte !== undefined) parts.push(`at byte ${place.byte}`);
    if (place.field !== undefined) parts.push(place.field);
    const where = `${[code, parts.join(", ")].filter(Boolean).join(" ")}: `;
    super(typeof detail === "string" ? where + detail : [where, ...detail]);
    this.byte = place.byte;
    this.field = place.field;
  }
}

/**
 * Control characters and direction marks that JSON does not escape, and that would change a terminal's
 * output.
 */
const INVISIBLE = /[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Returns untrusted text for a message: quoted, escaped and shortened to 80 characters. */
export function quote(text: string): string {
  const short = text.length > 80 ? `${text.slice(0, 77)}...` : text;
  const escape = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(short).replace(INVISIBLE, escape);
}
