/** A new order of rows, columns or elements: source runs, [start, count], in the order of the result. */
export type Runs = readonly (readonly [start: number, count: number])[];

/**
 * Returns the order that turns grouped V heads (all of K head 0 first) into tiled ones (the first of each K
 * head first): V head h then uses K head h % kHeads. The `first` leading elements stay in place. A head has
 * `size` elements.
 */
export function tiledHeads(kHeads: number, perKHead: number, size: number, first = 0): Runs {
  const runs: [number, number][] = first > 0 ? [[0, first]] : [];
  for (let i = 0; i < perKHead; i++) {
    for (let k = 0; k < kHeads; k++) runs.push([first + (k * perKHead + i) * size, size]);
  }
  return runs;
}

/**
 * Returns the row order of query or key heads that turns rotary pairs (i, i + half), as in Hugging Face's
 * files, into pairs (2i, 2i + 1), as in GGUF's architecture llama.
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

/** Returns the vector's values in the given order. */
export function inOrder(values: Float32Array, runs: Runs): Float32Array<ArrayBuffer> {
  const out = new Float32Array(values.length);
  let to = 0;
  for (const [start, count] of runs) {
    out.set(values.subarray(start, start + count), to);
    to += count;
  }
  return out;
}

/** Returns the values, which are in the order of `runs`, in the source's order. */
export function inSourceOrder(values: Float32Array, runs: Runs): Float32Array {
  const out = new Float32Array(values.length);
  let at = 0;
  for (const [start, count] of runs) {
    out.set(values.subarray(at, at + count), start);
    at += count;
  }
  return out;
}
