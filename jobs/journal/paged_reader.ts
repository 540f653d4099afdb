import { Pause } from "../run/pause.ts";
import { readFully, type StorageFile } from "./storage.ts";

const PAGE_BYTES = 64 * 1024;
const MAX_PAGES = 128;

/**
 * Reads ranges of a file through an 8 MiB cache of its most recently used pages. In the journal the answers of
 * neighbouring lines lie near each other, but not in order. The cached bytes must not change meanwhile.
 */
export class PagedReader {
  private readonly pages = new Map<number, Uint8Array>(); // oldest first
  private readonly pause = new Pause();

  /** `size`: the file's size in bytes. */
  constructor(private readonly file: StorageFile, private readonly size: number) {}

  /** Returns `wanted` bytes from `offset`, fewer only at the end of the file. They are valid until the next read. */
  async read(offset: number, wanted: number): Promise<Uint8Array> {
    const length = Math.min(wanted, this.size - offset);
    if (length <= 0) return new Uint8Array(0);
    const first = Math.floor(offset / PAGE_BYTES);
    const within = offset - first * PAGE_BYTES;
    if (within + length <= PAGE_BYTES) return (await this.page(first)).subarray(within, within + length);
    if (length > PAGE_BYTES) {
      const bytes = new Uint8Array(length);
      return bytes.subarray(0, await readFully(this.file, bytes, offset));
    }
    const head = (await this.page(first)).subarray(within);
    const tail = (await this.page(first + 1)).subarray(0, length - head.length);
    const bytes = new Uint8Array(head.length + tail.length);
    bytes.set(head);
    bytes.set(tail, head.length);
    return bytes;
  }

  private async page(number: number): Promise<Uint8Array> {
    let page = this.pages.get(number);
    if (page === undefined) {
      await this.pause.now();
      const buffer = this.buffer();
      page = buffer.subarray(0, await readFully(this.file, buffer, number * PAGE_BYTES));
    } else {
      this.pages.delete(number);
    }
    this.pages.set(number, page);
    return page;
  }

  /**
   * Returns a buffer: a new one, or that of the least recently used page, because the garbage collector frees pages too
   * late.
   */
  private buffer(): Uint8Array {
    if (this.pages.size < MAX_PAGES) return new Uint8Array(Math.min(PAGE_BYTES, this.size));
    const [oldest, page] = this.pages.entries().next().value!;
    this.pages.delete(oldest);
    return new Uint8Array(page.buffer);
  }
}
