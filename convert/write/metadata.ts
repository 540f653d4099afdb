import type { ValueType } from "../../engine/gguf/key_values.ts";

type Scalar = number | boolean | string;

/** A key and value of the GGUF file. An array's type is that of its elements. */
export interface Entry {
  readonly key: string;
  readonly type: Exclude<ValueType, "ARRAY">;
  readonly value: Scalar | readonly Scalar[];
}

export function entry(key: string, type: Entry["type"], value: Entry["value"]): Entry {
  return { key, type, value };
}
