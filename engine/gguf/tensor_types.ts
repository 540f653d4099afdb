import { FORMATS } from "./formats.ts";
import type { TensorType } from "./types.ts";

/** Memory layout of a tensor type: blocks of `elements` consecutive values in `bytes` bytes. */
export interface TensorTypeLayout {
  readonly id: number;
  readonly name: TensorType;
  readonly elements: number;
  readonly bytes: number;
}

const REMOVED = "removed from ggml";
const ACTIVATIONS = "only for activations";
const NO_WEIGHTS = "not used for weights";
const PRISM = "PrismML's own type, not ggml's";

/** More type ids, with ggml's name and the reason why compy does not support them. FORMATS takes precedence. */
const OTHERS: ReadonlyMap<number, readonly [name: string, reason: string]> = new Map([
  [4, ["Q4_2", REMOVED]],
  [5, ["Q4_3", REMOVED]],
  [9, ["Q8_1", ACTIVATIONS]],
  [15, ["Q8_K", ACTIVATIONS]],
  [24, ["I8", NO_WEIGHTS]],
  [25, ["I16", NO_WEIGHTS]],
  [26, ["I32", NO_WEIGHTS]],
  [27, ["I64", NO_WEIGHTS]],
  [28, ["F64", NO_WEIGHTS]],
  [31, ["Q4_0_4_4", REMOVED]],
  [32, ["Q4_0_4_8", REMOVED]],
  [33, ["Q4_0_8_8", REMOVED]],
  [36, ["IQ4_NL_4_4", REMOVED]],
  [37, ["IQ4_NL_4_8", REMOVED]],
  [38, ["IQ4_NL_8_8", REMOVED]],
  [142, ["PQ2_0", PRISM]],
  [143, ["PTQ1_0", PRISM]],
]);

/** The layout of 64-bit integers, which are not weights. Only drafters' files have such tensors. */
export const INTEGERS = { id: 27, name: "I64", elements: 1, bytes: 8 } as const;

const NAMES = Object.keys(FORMATS) as TensorType[];

const LAYOUTS: ReadonlyMap<number, TensorTypeLayout> = new Map(
  NAMES.map((name) => [FORMATS[name].id, { name, ...FORMATS[name] }]),
);

/** The names of the supported types, for error messages. */
export const SUPPORTED_TYPES: string = NAMES.join(", ");

/** Returns the layout of ggml's type id; undefined if compy does not support it. */
export function layoutOfId(id: number): TensorTypeLayout | undefined {
  return LAYOUTS.get(id);
}

export function layoutOf(type: TensorType): TensorTypeLayout {
  return LAYOUTS.get(FORMATS[type].id)!;
}

/** Returns ggml's name of the type id, for an unsupported type with the reason. */
export function nameOfId(id: number): string {
  const name = LAYOUTS.get(id)?.name;
  if (name !== undefined) return name;
  return OTHERS.get(id)?.join(", ") ?? "a type that ggml does not know";
}

/** Returns the bytes of `elements` consecutive tensor values, which must be whole blocks. */
export function byteLengthOf(type: TensorType, elements: number): number {
  const layout = layoutOf(type);
  return elements / layout.elements * layout.bytes;
}
