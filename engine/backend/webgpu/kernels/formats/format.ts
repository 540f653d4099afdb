/**
 * A weight format as GPU kernels use it: planes of aligned words, a packer, and the WGSL that decodes a
 * block.
 */

/** Columns of a block, which one call of `decode_block` decodes. */
export const BLOCK = 32;

/**
 * Strands of a matrix row. Strand s takes the pairs of blocks s, s + STRANDS and so on. In products of few
 * rows of activations each strand is a lane; in tiles one lane takes the strands one after the other.
 */
export const STRANDS = 8;

/** The type of decoded weights and of activations. */
export type Scalar = "f32" | "f16";

/** WGSL type of four neighbouring values. */
export const QUAD = { f32: "vec4<f32>", f16: "vec4<f16>" } as const;

/**
 * A part of a matrix with its own buffer: `bytes` for each `columns` columns of a row. Rows are padded to
 * whole elements.
 */
export interface Plane {
  /** Name in WGSL. NAME_ROW is the number of elements in a row. */
  readonly name: string;
  readonly element: "u32" | "vec2<u32>" | "vec4<u32>";
  readonly bytes: number;
  readonly columns: number;
  /**
   * Set where an element serves successive pairs of one strand, so that a lane keeps it. Otherwise it serves
   * neighbouring pairs.
   */
  readonly byStrand?: true;
}

/** How `decode_block` computes columns 32 b to 32 b + 31: they are `scale * values + offset`. */
export interface Decoder {
  /**
   * Statements that unpack a block. `b`, `own` (the block's own elements) and, where planes are shared,
   * `words` (the pair's elements) are in scope.
   */
  readonly body: string;
  /** Eight expressions of four values each. |value| <= 1 where the format is bounded. */
  readonly quads: readonly string[];
  /** Column (0 to 31) of each of the 32 values; by default the order of `quads` (`codes.ts`). */
  readonly order?: readonly number[];
  /** f32, or vec2<f32> for the two halves of the block. */
  readonly scale: string;
  /** Like scale; absent where the format has no mins. */
  readonly offset?: string;
  /** Declarations outside functions. */
  readonly globals?: string;
  /**
   * Statements before the first `decode_block`. `lane_in_group` and SIZE (lanes of the workgroup) are in
   * scope.
   */
  readonly setup?: string;
}

export interface WeightFormat {
  /** In the order of their bindings. */
  readonly planes: readonly Plane[];
  /** Columns that share a scale. */
  readonly sub: 16 | 32;
  /** Set where values have no bounds, so that f16 sums could overflow. */
  readonly unbounded?: true;
  /**
   * Whether the scale of the file's block at `from[at]` stands for NaN, which the decoder does not handle.
   */
  readonly isNan?: (from: Uint8Array, at: number) => boolean;
  /** Packs the file's block at `from[at]`; `places[p]` is where its bytes start in plane p. */
  pack(from: Uint8Array, at: number, planes: readonly Uint8Array[], places: readonly number[]): void;
  decoder(scalar: Scalar): Decoder;
}

/** Columns in natural order. */
export const NATURAL: readonly number[] = Array.from({ length: BLOCK }, (_, i) => i);

export const ELEMENT_BYTES = { "u32": 4, "vec2<u32>": 8, "vec4<u32>": 16 };

/** Returns the planes whose elements serve both blocks of a pair (2 p and 2 p + 1): one load serves both. */
export function sharedPlanes({ planes }: WeightFormat): readonly Plane[] {
  return planes.filter((plane) => elementsOfBlock(plane) < 1);
}

/** Returns the planes whose elements belong to one block. */
export function ownPlanes({ planes }: WeightFormat): readonly Plane[] {
  return planes.filter((plane) => elementsOfBlock(plane) >= 1);
}

/**
 * Returns how many pairs of a strand an element serves, where all shared planes are by strand; otherwise 1.
 */
export function keptPairs(format: WeightFormat): number {
  const planes = sharedPlanes(format);
  return planes.length > 0 && planes.every(({ byStrand }) => byStrand) ? Math.min(...planes.map(pairsOf)) : 1;
}

/** Returns how many neighbouring pairs an element of a shared plane serves. */
export function pairsBeside(plane: Plane): number {
  return plane.byStrand ? 1 : pairsOf(plane);
}

/** Expression for the element of a shared plane for a pair of a row. */
export function loadShared(plane: Plane, row = "row", pair = "pair"): string {
  const pairs = pairsOf(plane);
  const at = plane.byStrand
    ? `(${pair} / ${pairs * STRANDS}u * ${STRANDS}u + ${pair} % ${STRANDS}u)`
    : pairs === 1
    ? pair
    : `(${pair} >> ${Math.log2(pairs)}u)`;
  return `${plane.name}[${row} * ${rowOf(plane.name)} + ${at}]`;
}

/** Returns the plane's elements per block: less than one where it is shared. */
export function elementsOfBlock({ bytes, columns, element }: Plane): number {
  return bytes * BLOCK / columns / ELEMENT_BYTES[element];
}

/** Returns how many pairs one element of a shared plane serves. */
function pairsOf(plane: Plane): number {
  return 1 / (2 * elementsOfBlock(plane));
}

/** Returns the bytes of a row in a plane, in whole elements. */
export function rowBytesOf(plane: Plane, columns: number): number {
  const element = ELEMENT_BYTES[plane.element];
  const blocks = Math.ceil(columns / BLOCK);
  if (plane.byStrand) return Math.ceil(blocks / (2 * pairsOf(plane) * STRANDS)) * STRANDS * element;
  return Math.ceil(Math.ceil(blocks * BLOCK / plane.columns) * plane.bytes / element) * element;
}

/** Returns where the bytes of a row's column begin in its plane. */
export function placeOf(plane: Plane, column: number): number {
  if (!plane.byStrand) return column / plane.columns * plane.bytes;
  const [block, pairs] = [column / BLOCK, pairsOf(plane)];
  const [pair, half] = [block >> 1, block & 1];
  const element = Math.floor(pair / (pairs * STRANDS)) * STRANDS + pair % STRANDS;
  const inside = 2 * (Math.floor(pair / STRANDS) % pairs) + half;
  return element * ELEMENT_BYTES[plane.element] + inside * plane.bytes;
}

/** Statement that loads an f16 value of plane `name`, one per `columns` columns, as the f32 `to`. */
export function loadHalf(to: string, name: string, columns = BLOCK): string {
  return `let ${to} = half_of(${load16(name, columns)});`;
}

/** Expression for the 16 bits of a shared plane that belong to the block, one per `columns` columns. */
export function load16(name: string, columns = BLOCK): string {
  const block = columns === BLOCK ? "b" : `(b >> ${Math.log2(columns / BLOCK)}u)`;
  return `(words.${name} >> ((${block} & 1u) * 16u)) & 0xffffu`;
}

/** Expression for the block's byte of a shared plane by strands whose elements are words. */
export function load8(name: string): string {
  return `(words.${name} >> (((b / ${2 * STRANDS}u) & 1u) * 16u + (b & 1u) * 8u)) & 255u`;
}

/** Name of the constant that holds a plane's elements per row. */
export function rowOf(name: string): string {
  return `${name.toUpperCase()}_ROW`;
}

export function copy(from: Uint8Array, at: number, to: Uint8Array, place: number, length: number): void {
  for (let i = 0; i < length; i++) to[place + i] = from[at + i];
}

/**
 * Statements that define `up` and `down`, powers of two and each other's inverse. `up` brings the largest magnitude of x0 to x7, each a
 * vec4<f32>, to [2^(exponent - 1), 2^exponent).
 */
export function scaledTo(exponent: number): string {
  return `let m4 = max(max(max(abs(x0), abs(x1)), max(abs(x2), abs(x3))),
    max(max(abs(x4), abs(x5)), max(abs(x6), abs(x7))));
  let exponent = clamp(bitcast<u32>(max(max(m4.x, m4.y), max(m4.z, m4.w))) >> 23u, ${
    Math.max(10, exponent)
  }u, 252u);
  let up = bitcast<f32>((${253 + exponent}u - exponent) << 23u);
  let down = bitcast<f32>((exponent + 1u - ${exponent}u) << 23u);`;
}
