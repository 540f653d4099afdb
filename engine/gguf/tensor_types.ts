import { FORMATS } from "./formats.ts";
import type { TensorType } from "./types.ts";

/** Memory layout of a tensor type: blocks of `elements` consecutive values in `bytes` bytes. */
export interface TensorTypeLayout {
  readonly id: number;
  readonly name: TensorType;
  readonly elements: number;
  readonly bytes: number;
}

/** More of ggml's type ids, so that errors can name them. FORMATS takes precedence. Ids in neither table are unknown. */
const OTHERS: ReadonlyMap<number, string> = new Map([
  [4, "Q4_2 (removed from ggml)"],
  [5, "Q4_3 (removed from ggml)"],
  [9, "Q8_1"],
  [15, "Q8_K"],
  [24, "I8"],
  [25, "I16"],
  [26, "I32"],
  [27, "I64"],
  [28, "F64"],
  [31, "Q4_0_4_4 (removed from ggml)"],
  [32, "Q4_0_4_8 (removed from ggml)"],
  [33, "Q4_0_8_8 (removed from ggml)"],
  [36, "IQ4_NL_4_4 (removed from ggml)"],
  [37, "IQ4_NL_4_8 (removed from ggml)"],
  [38, "IQ4_NL_8_8 (removed from ggml)"],
  [41, "Q1_0"],
]);

const NAMES = Object.keys(FORMATS) as TensorType[];

const LAYOUTS: ReadonlyMap<number, TensorTypeLayout> = new Map(
  NAMES.map((name) => [FORMATS[name].id, { name, ...FORMATS[name] }]),
);

/** The names of the supported types, for error messages. */
export const SUPPORTED_TYPES: string = NAMES.join(", ");

/** Returns the layout of ggml's type id; undefined where compy does not support it. */
export function layoutOfId(id: number): TensorTypeLayout | undefined {
  return LAYOUTS.get(id);
}

export function layoutOf(type: TensorType): TensorTypeLayout {
  return LAYOUTS.get(FORMATS[type].id)!;
}

/** Returns ggml's name of the type id, supported or not. */
export function nameOfId(id: number): string {
  return LAYOUTS.get(id)?.name ?? OTHERS.get(id) ?? "a type that ggml does not know";
}

/** Returns the bytes of `elements` consecutive values, which must be whole blocks. */
export function byteLengthOf(type: TensorType, elements: number): number {
  const layout = layoutOf(type);
  return elements / layout.elements * layout.bytes;
}
