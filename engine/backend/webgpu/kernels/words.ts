/**
 * How kernels load a weight block: its own elements of the planes, and elements that it shares with neighbouring
 * blocks.
 */
import {
  elementsOfBlock,
  keptPairs,
  loadShared,
  ownPlanes,
  pairsBeside,
  type Plane,
  rowOf,
  sharedPlanes,
  STRANDS,
  type WeightFormat,
} from "./formats/format.ts";

/**
 * Returns `Own` and `load_own(row, b)` (WGSL) for a block's own elements, and `Words` and `load_words(row, pair)` for
 * elements that a pair shares.
 */
export function loaders(format: WeightFormat): string {
  const own = ownPlanes(format);
  const shared = sharedPlanes(format);
  const text = `struct Own { ${own.map((plane) => `${plane.name}: ${typeOfOwn(plane)}`).join(", ")} }
fn load_own(row: u32, b: u32) -> Own { return Own(${own.map(loadOwn).join(", ")}); }`;
  if (shared.length === 0) return text;
  return `${text}
struct Words { ${shared.map(({ name, element }) => `${name}: ${element}`).join(", ")} }
fn load_words(row: u32, pair: u32) -> Words { return Words(${
    shared.map((plane) => loadShared(plane)).join(", ")
  }); }`;
}

function typeOfOwn(plane: Plane): string {
  const count = elementsOfBlock(plane);
  return count === 1 ? plane.element : `array<${plane.element}, ${count}>`;
}

function loadOwn(plane: Plane): string {
  const count = elementsOfBlock(plane);
  const at = (i: number) => `${plane.name}[row * ${rowOf(plane.name)} + ${count}u * b + ${i}u]`;
  const elements = Array.from({ length: count }, (_, i) => at(i));
  return count === 1 ? elements[0] : `${typeOfOwn(plane)}(${elements.join(", ")})`;
}

/** Returns WGSL that loads a pair's shared elements as `name`; empty if the format has none. */
export function loadPair(format: WeightFormat, name: string, row: string, pair: string): string {
  return sharedPlanes(format).length === 0 ? "" : `let ${name} = load_words(${row}, ${pair});`;
}

/** Returns a WGSL expression that decodes block `b` from its own elements and the pair's shared `words`, if any. */
export function decoded(format: WeightFormat, b: string, own: string, words: string): string {
  return `decode_block(${b}, ${own}${sharedPlanes(format).length === 0 ? "" : `, ${words}`})`;
}

/** WGSL with which a loop over a strand's pairs loads their shared elements. */
export interface PairWords {
  /** WGSL declarations outside functions. */
  readonly globals: string;
  /** WGSL statements before the loop over pairs. */
  readonly before: string;
  /** WGSL statements inside the loop. If lanes load elements for each other, a barrier must follow. */
  readonly load: string;
  /** WGSL expression for the shared elements, valid after the statements and the barrier. */
  readonly words: string;
}

/**
 * Returns the code for a lane that loads its elements alone. `first`: the pair of the lane's strand, or of the first
 * strand. The lane keeps elements that several of its pairs share.
 */
export function pairWords(
  format: WeightFormat,
  name: string,
  row: string,
  pair: string,
  first: string,
): PairWords {
  const kept = keptPairs(format);
  if (kept === 1) return { globals: "", before: "", load: loadPair(format, name, row, pair), words: name };
  return {
    globals: "",
    before: `var ${name} = Words();`,
    load: `if (${first} % ${kept * STRANDS}u < ${STRANDS}u) { ${name} = load_words(${row}, ${pair}); }`,
    words: name,
  };
}

/**
 * Returns the code for neighbouring lanes in a workgroup of SIZE lanes. The first lane loads an element that
 * neighbouring pairs share, and stores it in workgroup memory for the others.
 */
export function pairWordsOfNeighbours(
  format: WeightFormat,
  name: string,
  row: string,
  pair: string,
  first: string,
): PairWords {
  const shared = sharedPlanes(format);
  if (shared.every((plane) => pairsBeside(plane) === 1)) return pairWords(format, name, row, pair, first);
  const mine = (plane: Plane) => `${name}_${plane.name}`;
  const place = (plane: Plane) => `${mine(plane)}[lane_in_group / ${pairsBeside(plane)}u]`;
  const beside = shared.filter((plane) => pairsBeside(plane) > 1);
  const load = (plane: Plane) => {
    const element = loadShared(plane, row, pair);
    return beside.includes(plane)
      ? `if (lane_in_group % ${pairsBeside(plane)}u == 0u) { ${place(plane)} = ${element}; }`
      : `let ${mine(plane)} = ${element};`;
  };
  return {
    globals: beside.map((plane) =>
      `var<workgroup> ${mine(plane)}: array<${plane.element}, SIZE / ${pairsBeside(plane)}u>;`
    ).join("\n"),
    before: "",
    load: shared.map(load).join(" "),
    words: `Words(${shared.map((plane) => beside.includes(plane) ? place(plane) : mine(plane)).join(", ")})`,
  };
}
