/** What is wrong with a GGUF file, by the kind of field that is wrong. */
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
  | "GGUF_DATA";

/** Where in the file: `byte` counts from its start, `field` is e.g. `tensor "output.weight"`. */
export interface GgufErrorPlace {
  readonly byte?: number;
  readonly field?: string;
}

/**
 * A GGUF file that compy refuses. The message reads
 * `GGUF_OFFSET at byte 1234, tensor "output.weight": found 33, allowed a multiple of 32`.
 */
export class GgufError extends Error {
  override name = "GgufError";
  readonly byte: number | undefined;
  readonly field: string | undefined;

  constructor(readonly code: GgufErrorCode, detail: string, place: GgufErrorPlace = {}) {
    const parts = [];
    if (place.byte !== undefined) parts.push(`at byte ${place.byte}`);
    if (place.field !== undefined) parts.push(place.field);
    super(`${[code, parts.join(", ")].filter(Boolean).join(" ")}: ${detail}`);
    this.byte = place.byte;
    this.field = place.field;
  }
}

/** A stranger's text as it may stand in a message: quoted, escaped, and never longer than a line. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 77)}...` : text);
}
