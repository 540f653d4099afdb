/** A vector with the id of its line. */
export interface EmbeddedText {
  readonly id?: string | number;
  readonly row: Float32Array;
}

/** A file format for vectors: a header, then one record per vector. */
export interface VectorFormat {
  head(vectors: number, dimensions: number): Uint8Array;
  vector(text: EmbeddedText, index: number): Uint8Array;
}

const encoder = new TextEncoder();

/** JSONL: each object holds `index` of the text in the input, its `id` if it has one, and `embedding`. */
const JSONL: VectorFormat = {
  head: () => new Uint8Array(0),
  vector: ({ id, row }, index) => {
    // Nine digits distinguish all 32-bit floats.
    const embedding = Array.from(row, (x) => Number(x.toPrecision(9)));
    return encoder.encode(`${JSON.stringify({ index, id, embedding })}\n`);
  },
};

const NPY_ALIGN = 64;

/** NumPy's format, version 1.0: an f32 matrix with one row per text. */
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

/** Returns the format for a file name; undefined for an unknown extension. */
export function formatOf(path: string): VectorFormat | undefined {
  if (path.endsWith(".jsonl")) return JSONL;
  return path.endsWith(".npy") ? NPY : undefined;
}

/** Number of bytes to buffer per write. */
const BUFFER_BYTES = 2 ** 20;

/** An output file that grows as TARGET.partial beside its target and is renamed when complete. */
export class PartialOutput implements AsyncDisposable {
  readonly #pending: Uint8Array[] = [];
  #bytes = 0;
  #complete = false;

  private constructor(private readonly file: Deno.FsFile, private readonly target: string) {}

  /** Creates the partial file. Throws if the target already exists or the file cannot be created. */
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

  /** Deletes the partial file unless it is complete. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.file.close();
    // The error that discards the file matters more than a failed removal.
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

/** Throws if the path exists: a user's file is never overwritten. */
async function refuseExisting(path: string): Promise<void> {
  const found = await Deno.lstat(path).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
  if (found) throw new Error(`Cannot write ${path}: it already exists; remove it or choose another name`);
}
