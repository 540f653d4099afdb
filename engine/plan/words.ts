/** A growing message of little-endian 32-bit words, the form in which plans and steps cross the FFI. */
export class WordWriter {
  #view: DataView<ArrayBuffer>;
  #length = 0;

  constructor(capacity = 4096) {
    this.#view = new DataView(new ArrayBuffer(capacity));
  }

  u32(...values: number[]): this {
    const at = this.#reserve(4 * values.length);
    values.forEach((v, i) => this.#view.setUint32(at + 4 * i, v, true));
    return this;
  }

  f32(value: number): this {
    const at = this.#reserve(4); // first, because it may replace the view
    this.#view.setFloat32(at, value, true);
    return this;
  }

  f64(value: number): this {
    const at = this.#reserve(8);
    this.#view.setFloat64(at, value, true);
    return this;
  }

  /** Appends a 64-bit size. */
  u64(value: number): this {
    const at = this.#reserve(8);
    this.#view.setBigUint64(at, BigInt(value), true);
    return this;
  }

  i32s(values: Int32Array | Uint32Array): this {
    return this.#words(values);
  }

  f32s(values: Float32Array): this {
    return this.#words(values);
  }

  text(value: string): this {
    const bytes = new TextEncoder().encode(value);
    const at = this.#reserve(bytes.length);
    new Uint8Array(this.#view.buffer, at, bytes.length).set(bytes);
    return this;
  }

  /** Starts a new message in the same memory. */
  clear(): this {
    this.#length = 0;
    return this;
  }

  /** Returns the message, which is valid until the writer is used again. */
  bytes(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.#view.buffer, 0, this.#length);
  }

  /**
   * Copies bytes unchanged: all machines with kernels are little-endian. Copying is fast, which matters for masks of
   * thousands of words.
   */
  #words({ buffer, byteOffset, byteLength }: Int32Array | Uint32Array | Float32Array): this {
    const at = this.#reserve(byteLength);
    new Uint8Array(this.#view.buffer, at, byteLength).set(new Uint8Array(buffer, byteOffset, byteLength));
    return this;
  }

  /** Allocates memory for that many more bytes at once. */
  room(bytes: number): this {
    if (this.#length + bytes > this.#view.byteLength) this.#grow(this.#length + bytes);
    return this;
  }

  #reserve(bytes: number): number {
    const at = this.#length;
    this.#length += bytes;
    if (this.#length > this.#view.byteLength) this.#grow(Math.max(this.#length, 2 * this.#view.byteLength));
    return at;
  }

  #grow(bytes: number): void {
    const larger = new Uint8Array(bytes);
    larger.set(new Uint8Array(this.#view.buffer));
    this.#view = new DataView(larger.buffer);
  }
}
