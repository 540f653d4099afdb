import { hash } from "node:crypto";
import { GrowingTable } from "./growing_table.ts";

/**
 * Number of words in an entry: 64 bits of the id's SHA-256, the line number, and the index of the next entry in the
 * bucket.
 */
const ENTRY_WORDS = 4;
const KEY = 0, LINE = 2, NEXT = 3;

/**
 * Maps each custom_id to the first line that used it, in 20 bytes per id: one entry and one bucket head. Storing a
 * million ids as text would take hundreds of megabytes. Among ten million ids, the chance that any two share 64 bits is
 * 3 in a million.
 *
 * Uses linear hashing (Litwin 1980): each new id adds one bucket, which takes entries from one other bucket. No insert
 * waits for a rebuild of the whole table, and neither do requests to a server in the same process.
 */
export class CustomIds {
  private readonly entries: GrowingTable; // [ids, ENTRY_WORDS]
  /** Index of the first entry in each bucket, counted from 1; 0 for an empty bucket. */
  private readonly heads: GrowingTable; // [buckets]
  /** Mask of the hash bits that select a bucket. One more bit is used if that bucket already exists. */
  private mask = 0;

  constructor(maxIds: number) {
    this.entries = new GrowingTable(ENTRY_WORDS * maxIds);
    this.heads = new GrowingTable(maxIds + 1);
    this.heads.push(0);
  }

  /** Adds an id. Returns 0 if the id is new, else the line number (from 1) that already has it. */
  add(customId: string, line: number): number {
    const [high, low] = keyOf(customId);
    const found = this.lineOf(high, low);
    if (found !== 0) return found;
    for (const word of [high, low, line, 0]) this.entries.push(word);
    this.link(this.entries.length / ENTRY_WORDS);
    this.split();
    return 0;
  }

  /** Returns the line number (from 1) that has the custom_id, or 0. */
  find(customId: string): number {
    const [high, low] = keyOf(customId);
    return this.lineOf(high, low);
  }

  free(): void {
    this.entries.free();
    this.heads.free();
  }

  private lineOf(high: number, low: number): number {
    for (let entry = this.heads.get(this.bucketOf(high)); entry !== 0; entry = this.at(entry, NEXT)) {
      if (this.at(entry, KEY) === high && this.at(entry, KEY + 1) === low) return this.at(entry, LINE);
    }
    return 0;
  }

  private bucketOf(key: number): number {
    const bucket = (key & (2 * this.mask + 1)) >>> 0;
    return bucket < this.heads.length ? bucket : (key & this.mask) >>> 0;
  }

  private at(entry: number, word: number): number {
    return this.entries.get((entry - 1) * ENTRY_WORDS + word);
  }

  private link(entry: number): void {
    const bucket = this.bucketOf(this.at(entry, KEY));
    this.entries.set((entry - 1) * ENTRY_WORDS + NEXT, this.heads.get(bucket));
    this.heads.set(bucket, entry);
  }

  /** Adds one bucket, and moves entries to it from the bucket that it splits. */
  private split(): void {
    const parted = this.heads.length & this.mask;
    this.heads.push(0);
    if (this.heads.length === 2 * (this.mask + 1)) this.mask = 2 * this.mask + 1;
    let entry = this.heads.get(parted);
    this.heads.set(parted, 0);
    while (entry !== 0) {
      const next = this.at(entry, NEXT);
      this.link(entry);
      entry = next;
    }
  }
}

function keyOf(customId: string): [high: number, low: number] {
  const digest = hash("sha256", customId);
  return [parseInt(digest.slice(0, 8), 16), parseInt(digest.slice(8, 16), 16)];
}
