import { hash } from "node:crypto";
import { GrowingTable } from "./growing_table.ts";

/** An entry: 64 bits of the id's SHA-256, the line's number, and the next entry of its bucket. */
const ENTRY_WORDS = 4;
const KEY = 0, LINE = 2, NEXT = 3;

/**
 * Which line had a custom_id first. Texts of a million ids would take hundreds of megabytes, so there are 20 bytes for
 * each: an entry, and a bucket's head. Two ids of ten millions have the same 64 bits with a chance of 3 in a million.
 *
 * Linear hashing (Litwin 1980): each new id adds one bucket, which takes its entries from one other. So no id waits for
 * the whole table to be rebuilt, and neither do requests to a server in the same process.
 */
export class CustomIds {
  private readonly entries: GrowingTable; // [ids, ENTRY_WORDS]
  /** First entry of each bucket, counted from 1; 0: none. */
  private readonly heads: GrowingTable; // [buckets]
  /** Buckets are found by so many bits, or by one more where that bucket is there already. */
  private mask = 0;

  constructor(maxIds: number) {
    this.entries = new GrowingTable(ENTRY_WORDS * maxIds);
    this.heads = new GrowingTable(maxIds + 1);
    this.heads.push(0);
  }

  /** 0 when the id is new, else the line (from 1) that has it already. */
  add(customId: string, line: number): number {
    const [high, low] = keyOf(customId);
    const found = this.lineOf(high, low);
    if (found !== 0) return found;
    for (const word of [high, low, line, 0]) this.entries.push(word);
    this.link(this.entries.length / ENTRY_WORDS);
    this.split();
    return 0;
  }

  /** The line (from 1) that has the id, 0 when none has. */
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

  /** Adds a bucket, and shares out the entries of the one that had its ids. */
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
