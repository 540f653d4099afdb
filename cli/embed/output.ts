/** A vector with the name that its line gives it. */
export interface EmbeddedText {
  readonly id?: string | number;
  readonly row: Float32Array;
}

/** How vectors are written: what comes before them, and each of them. */
export interface VectorFormat {
  head(vectors: number, dimensions: number): Uint8Array;
  vector(text: EmbeddedText, index: number): Uint8Array;
}

const encoder = new TextEncoder();

/** A JSON object a line: `index` of the text in the input, its `id` where it has one, `embedding`. */
const JSONL: VectorFormat = {
  head: () => new Uint8Array(0),
  vector: ({ id, row }, index) => {
    // As many digits as tell one 32-bit float from the next.
    const embedding = Array.from(row, (x) => Number(x.toPrecision(9)));
    return encoder.encode(`${JSON.stringify({ index, id, embedding })}\n`);
  },
};

const NPY_ALIGN = 64;

/** NumPy's format, version 1.0: a matrix of f32, a row a text. */
const NPY: VectorFormat = {
  head: (vectors, dimensions) => {
    const text = `{'descr': '<f4', 'fortran_order': False, 'shape': (${vectors}, ${dimensions}), }`;
    const length = Math.ceil((10 + text.length + 1) / NPY_ALIGN) * NPY_ALIGN - 10;
    const head = new Uint8Array(10 + length);
    head.set([0x93, ...encoder.encode("NUMPY"), 1, 0, length & 0xff, length >> 8]);
    head.set(encoder.encode(`${text.padEnd(length - 1)}\n`), 10);
    return head;
  },
  vector: ({ row }) => {
    const bytes = new Uint8Array(4 * row.length);
    const view = new DataView(bytes.buffer);
    row.forEach((x, i) => view.setFloat32(4 * i, x, true));
    return bytes;
  },
};

/** By the name of the file; undefined for another. */
export function formatOf(path: string): VectorFormat | undefined {
  if (path.endsWith(".jsonl")) return JSONL;
  return path.endsWith(".npy") ? NPY : undefined;
}

/** Bytes that are written at once. */
const BUFFER_BYTES = 2 ** 20;

/** A file under way: it grows beside its target, as TARGET.partial, and takes the target's name when it is complete. */
export class PartialOutput implements AsyncDisposable {
  readonly #pending: Uint8Array[] = [];
  #bytes = 0;
  #complete = false;

  private constructor(private readonly file: Deno.FsFile, private readonly target: string) {}

  /** Throws where something is at the target already, or the file cannot be made. */
  static async create(target: string): Promise<PartialOutput> {
    await refuseExisting(target);
    const options = { write: true, create: true, truncate: true };
    return new PartialOutput(await Deno.open(partialOf(target), options), target);
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#pending.push(bytes);
    this.#bytes += bytes.length;
    if (this.#bytes >= BUFFER_BYTES) await this.#flush();
  }

  async complete(): Promise<void> {
    await this.#flush();
    await this.file.sync();
    await refuseExisting(this.target);
    await Deno.rename(partialOf(this.target), this.target);
    this.#complete = true;
  }

  /** Leaves nothing behind, unless it is complete. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.file.close();
    // Why it is discarded counts, not that it could not be.
    if (!this.#complete) await Deno.remove(partialOf(this.target)).catch(() => {});
  }

  async #flush(): Promise<void> {
    for (const bytes of this.#pending.splice(0)) {
      for (let done = 0; done < bytes.length;) done += await this.file.write(bytes.subarray(done));
    }
    this.#bytes = 0;
  }
}

function partialOf(target: string): string {
  return `${target}.partial`;
}

/** A file of somebody's is never written over. */
async function refuseExisting(path: string): Promise<void> {
  const found = await Deno.lstat(path).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
  if (found) throw new Error(`Cannot write ${path}: it is there already; remove it or choose another name`);
}
