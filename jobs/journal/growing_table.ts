const FIRST_BYTES = 4 * 1024;
const STEP_BYTES = 256 * 1024;

/**
 * A table of u32 values whose length is not known in advance. The table reserves address space for the maximum and uses
 * memory as it fills. The table never copies values, and `free` releases everything at once.
 */
export class GrowingTable {
  length = 0;
  private readonly buffer: ArrayBuffer;
  private readonly values: Uint32Array<ArrayBuffer>; // grows with the buffer

  constructor(maxLength: number) {
    const maxByteLength = STEP_BYTES * Math.ceil(4 * maxLength / STEP_BYTES);
    this.buffer = new ArrayBuffer(0, { maxByteLength });
    this.values = new Uint32Array(this.buffer);
  }

  push(value: number): void {
    if (this.length === this.values.length) this.grow();
    this.values[this.length++] = value;
  }

  private grow(): void {
    const { byteLength, maxByteLength } = this.buffer;
    const step = Math.min(STEP_BYTES, Math.max(FIRST_BYTES, byteLength));
    this.buffer.resize(Math.min(maxByteLength, byteLength + step));
  }

  /** Returns the value at an index below `length`. */
  get(index: number): number {
    return this.values[index];
  }

  set(index: number, value: number): void {
    this.values[index] = value;
  }

  /** Returns the values pushed so far; they are not copied. */
  view(): Uint32Array<ArrayBuffer> {
    return this.values.subarray(0, this.length);
  }

  /** Releases the table's memory. Do not use the table afterwards. */
  free(): void {
    this.buffer.resize(0);
  }
}
