/** A new order of rows, columns or elements: runs of the source, [start, count], in the order of the result. */
export type Runs = readonly (readonly [start: number, count: number])[];

/**
 * V heads from grouped by K head (all of K head 0 first) to tiled (the first of each K head first), so that V head h
 * uses K head h % kHeads. `first` elements before them stay where they are; a head has `size` elements.
 */
export function tiledHeads(kHeads: number, perKHead: number, size: number, first = 0): Runs {
  const runs: [number, number][] = first > 0 ? [[0, first]] : [];
  for (let i = 0; i < perKHead; i++) {
    for (let k = 0; k < kHeads; k++) runs.push([first + (k * perKHead + i) * size, size]);
  }
  return runs;
}

/**
 * Rows of query or key heads whose rotated pairs are (i, i + half), as Hugging Face has them, to pairs (2i, 2i + 1),
 * as GGUF's architecture llama has them.
 */
export function interleavedPairs(heads: number, headDim: number): Runs {
  const runs: [number, number][] = [];
  for (let head = 0; head < heads; head++) {
    for (let i = 0; i < headDim / 2; i++) {
      runs.push([head * headDim + i, 1], [head * headDim + headDim / 2 + i, 1]);
    }
  }
  return runs;
}

/** A vector in that order. */
export function inOrder(values: Float32Array, runs: Runs): Float32Array<ArrayBuffer> {
  const out = new Float32Array(values.length);
  let to = 0;
  for (const [start, count] of runs) {
    out.set(values.subarray(start, start + count), to);
    to += count;
  }
  return out;
}
