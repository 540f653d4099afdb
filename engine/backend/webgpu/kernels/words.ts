/** How kernels load a block: its own elements of the planes, and those that it has in common with its neighbours. */
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

/** `Own` and `load_own(row, b)`: a block's own elements; `Words` and `load_words(row, pair)`: what the blocks of a pair have in common. */
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

/** Statement: `name`, what the blocks of a pair have in common; nothing where that is nothing. */
export function loadPair(format: WeightFormat, name: string, row: string, pair: string): string {
  return sharedPlanes(format).length === 0 ? "" : `let ${name} = load_words(${row}, ${pair});`;
}

/** Expression: block `b` out of `own`, its own elements, and `words`, those of its pair. */
export function decoded(format: WeightFormat, b: string, own: string, words: string): string {
  return `decode_block(${b}, ${own}${sharedPlanes(format).length === 0 ? "" : `, ${words}`})`;
}

/** What the blocks of a pair have in common, in a loop over a strand's pairs. */
export interface PairWords {
  /** Declarations outside functions. */
  readonly globals: string;
  /** Statements before the loop. */
  readonly before: string;
  /** Statements in the loop; where lanes are neighbours, before a barrier. */
  readonly load: string;
  /** Expression, after that. */
  readonly words: string;
}

/** Of a lane by itself, `first` being the strand's pair or the first strand's: what serves several of its pairs is kept. */
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
 * The same where the strands are lanes side by side, in a workgroup of SIZE: of an element that serves several pairs side by side the
 * first of their lanes puts it into workgroup memory for the others.
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
