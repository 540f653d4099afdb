import { delay } from "@std/async/delay.js";
import { type Folder, isMissing, type Listed, LOCK } from "./folder.ts";
import { HEAD_BYTES, headOf, partOf } from "./part_file.ts";
import type { PromptStore } from "./types.ts";

export interface StoreOptions {
  /** Maximum bytes of all stored parts. */
  readonly limit: number;
  /** Milliseconds after its last use in which a part is never evicted. */
  readonly keepMs?: number;
  /** Receives messages for the operator, once per kind of problem. */
  readonly warn: (message: string) => void;
}

interface Entry {
  /** Bytes of the part's file on disk. */
  readonly bytes: number;
  /** Time of the last use, and of the last use that the file records, in milliseconds since 1970. */
  usedAt: number;
  touchedAt: number;
}

interface Write {
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly settle: (there: boolean) => void;
}

const PART = /^([0-9a-f]{64})\.kv$/;
/** File name of an unfinished part that a killed process left. */
const UNFINISHED = /^[0-9a-f]{64}\.tmp$/;
const SECRET = "prompts.secret";
const SECRET_BYTES = 32;
/** Maximum bytes that wait to be written. Beyond it, the store accepts no parts. */
const MOST_QUEUED = 128 * 2 ** 20;
/** Milliseconds without writing after a failed write. */
const QUIET_MS = 60_000;
/** Limit for concurrent reads, each of which needs a file descriptor. */
const MOST_READS = 16;
/** Milliseconds between attempts to take the lock and reread the names while another process writes. */
const LOOK_MS = 15_000;
/** Minimum milliseconds between updates of a file's last use, which orders eviction after a restart. */
const TOUCH_MS = 60_000;
const CLOSE_MS = 10_000;
/** Number of attempts to read the secret that the writing process creates, and their interval. */
const SECRET_TRIES = 10;
const SECRET_PAUSE_MS = 50;
/** Names of errors that any disk may return at any time. */
const TROUBLES = new Set(["ENOSPC", "EDQUOT", "EIO", "EMFILE", "ENFILE"]);
const PAGE = 4096;

/** Returns whether a file of this name holds a part. */
export function isPart(name: string): boolean {
  return PART.test(name);
}

/** Returns whether a store created the file of this name. */
export function isOwn(name: string): boolean {
  return isPart(name) || UNFINISHED.test(name) || [SECRET, `${SECRET}.tmp`, LOCK].includes(name);
}

/** Returns the disk space of a part's file. */
export function fileBytes(part: number): number {
  return Math.ceil((HEAD_BYTES + part) / PAGE) * PAGE;
}

/**
 * Stores parts of prompts in a folder, one file each. One process writes and evicts the least recently used
 * parts; others only read. A damaged, truncated or misnamed file counts as a miss, and the writing process
 * removes it.
 */
export class FolderStore implements PromptStore {
  /** Stored parts by name, least recently used first. */
  readonly #index = new Map<string, Entry>();
  #bytes = 0;
  #secret: Uint8Array = new Uint8Array(0);
  /** Whether this process writes to the folder. */
  #writes = false;
  #looked = -Infinity;
  #looking = false;
  readonly #queue: Write[] = [];
  #queued = 0;
  readonly #touches = new Map<string, number>();
  #working: Promise<void> | undefined;
  #quietUntil = -Infinity;
  /** Number of running reads, and reads that wait for their turn. */
  #reads = 0;
  readonly #readers: (() => void)[] = [];
  readonly #warned = new Set<string>();
  readonly #listeners = new Set<() => void>();
  #closed = false;

  private constructor(private readonly folder: Folder, private readonly options: StoreOptions) {}

  /**
   * Opens a prompt cache folder with any contents. Throws if the folder is permanently unusable, for example by its
   * path.
   */
  static async open(folder: Folder, options: StoreOptions): Promise<FolderStore> {
    const store = new FolderStore(folder, options);
    try {
      await folder.make();
      await store.#look();
      for (let i = 0; i < SECRET_TRIES && store.#secret.length === 0; i++) {
        await delay(SECRET_PAUSE_MS);
        await store.#look();
      }
      if (!store.#writes) store.#warn("locked", "another process writes to it; here it is only read");
    } catch (error) {
      if (!TROUBLES.has((error as { code?: string }).code ?? "")) throw error;
      store.#warn("write", `it cannot be used now: ${reason(error)}`);
    }
    return store;
  }

  /** The secret key that makes the names; empty before it exists. */
  get secret(): Uint8Array {
    return this.#secret;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get limit(): number {
    return this.options.limit;
  }

  get room(): number {
    return MOST_QUEUED - this.#queued;
  }

  get writable(): boolean {
    if (!this.#writes) this.#lookAgain();
    return this.#writes && !this.#closed && performance.now() >= this.#quietUntil;
  }

  has(name: string): boolean {
    if (this.#index.has(name)) return true;
    if (!this.#writes) this.#lookAgain();
    return false;
  }

  async read(name: string, bytes: number): Promise<Uint8Array | undefined> {
    while (this.#reads >= MOST_READS) await new Promise<void>((resolve) => this.#readers.push(resolve));
    this.#reads++;
    try {
      return await this.#readOne(name, bytes);
    } finally {
      this.#reads--;
      this.#readers.shift()?.();
    }
  }

  async #readOne(name: string, bytes: number): Promise<Uint8Array | undefined> {
    if (this.#closed) return undefined;
    try {
      const file = await this.folder.read(`${name}.kv`, HEAD_BYTES + bytes);
      const part = file && await partOf(name, file);
      if (part) return part;
    } catch (error) {
      if (isShortage(error)) return undefined;
      if (!isMissing(error)) {
        this.#warn("read", `it cannot be read: ${reason(error)}`);
        return undefined;
      }
    }
    await this.#giveUp(name);
    return undefined;
  }

  write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<boolean> {
    if (!this.writable) return Promise.resolve(this.#index.has(name));
    this.#queued += bytes.length;
    return new Promise((settle) => {
      this.#queue.push({ name, bytes, settle });
      this.#work();
    });
  }

  async sync(names: readonly string[]): Promise<boolean> {
    if (!this.#writes || !names.every((name) => this.#index.has(name))) return false;
    try {
      await this.folder.sync(names.map((name) => `${name}.kv`));
      return names.every((name) => this.#index.has(name));
    } catch (error) {
      this.#fail(error);
      return false;
    }
  }

  use(names: readonly string[]): void {
    const now = Date.now();
    for (let i = names.length - 1; i >= 0; i--) {
      const entry = this.#index.get(names[i]);
      if (!entry) continue;
      entry.usedAt = now;
      this.#index.delete(names[i]);
      this.#index.set(names[i], entry);
      // A time in the future was recorded while the clock was wrong.
      if (!this.#writes || Math.abs(now - entry.touchedAt) < TOUCH_MS) continue;
      entry.touchedAt = now;
      this.#touches.set(names[i], now - i);
    }
    this.#work();
  }

  onRoom(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Resolves when all queued parts are written. */
  async settle(): Promise<void> {
    while (this.#working) await this.#working;
  }

  /** Writes the queue for at most CLOSE_MS, then closes the store. */
  async close(): Promise<void> {
    const late = new AbortController();
    await Promise.race([this.settle(), delay(CLOSE_MS, { signal: late.signal }).catch(() => {})]);
    late.abort();
    this.#closed = true;
    this.folder.unlock();
  }

  #work(): void {
    if (this.#working || (this.#queue.length === 0 && this.#touches.size === 0)) return;
    this.#working = this.#workAll().finally(() => {
      this.#working = undefined;
      this.#work();
    });
  }

  async #workAll(): Promise<void> {
    for (let write = this.#queue.shift(); write; write = this.#queue.shift()) {
      const there = await this.#writeOne(write);
      this.#queued -= write.bytes.length;
      write.settle(there);
      for (const listener of [...this.#listeners]) listener();
    }
    for (const [name, at] of [...this.#touches]) {
      this.#touches.delete(name);
      // A failure to update the time only means that the part may be evicted too early.
      await this.folder.touch(`${name}.kv`, at).catch(() => {});
    }
  }

  async #writeOne({ name, bytes }: Write): Promise<boolean> {
    if (this.#index.has(name)) return true;
    if (!this.writable) return false;
    const size = fileBytes(bytes.length);
    let unfinished = false;
    try {
      if (!await this.#makeRoom(size)) return false;
      const head = await headOf(name, bytes);
      this.#bytes += size;
      unfinished = true;
      await this.folder.write(`${name}.tmp`, [head, bytes]);
      await this.folder.rename(`${name}.tmp`, `${name}.kv`);
      unfinished = false;
      this.#index.set(name, { bytes: size, usedAt: Date.now(), touchedAt: Date.now() });
      return true;
    } catch (error) {
      this.#fail(error);
      return false;
    } finally {
      if (unfinished) {
        // Bytes of a file that cannot be removed still count.
        await this.folder.remove(`${name}.tmp`).then(() => this.#bytes -= size, () => {});
      }
    }
  }

  /** Evicts the least recently used parts until `bytes` more fit. Returns false if they cannot fit. */
  async #makeRoom(bytes: number): Promise<boolean> {
    const { limit, keepMs } = this.options;
    if (bytes > limit) return false;
    const now = Date.now();
    const isKept = (usedAt: number) => keepMs !== undefined && Math.abs(now - usedAt) <= keepMs;
    for (const [name, { usedAt }] of this.#index) {
      if (this.#bytes + bytes <= limit) return true;
      if (!isKept(usedAt)) await this.#remove(name);
    }
    return this.#bytes + bytes <= limit;
  }

  /** Removes a damaged part and reports it. */
  async #giveUp(name: string): Promise<void> {
    if (this.#writes) await this.#remove(name).catch((error) => this.#fail(error));
    else this.#forget(name);
  }

  /** Removes a part. Throws if its file cannot be removed; the part is then forgotten, but its bytes still count. */
  async #remove(name: string): Promise<void> {
    const entry = this.#index.get(name);
    if (!entry) return;
    this.#index.delete(name);
    await this.folder.remove(`${name}.kv`);
    this.#bytes -= entry.bytes;
  }

  #forget(name: string): void {
    this.#bytes -= this.#index.get(name)?.bytes ?? 0;
    this.#index.delete(name);
  }

  #lookAgain(): void {
    if (this.#looking || this.#closed || performance.now() - this.#looked < LOOK_MS) return;
    this.#looking = true;
    this.#look().catch((error) => this.#warn("read", `it cannot be read: ${reason(error)}`)).finally(() => {
      this.#looking = false;
      if (this.#closed) this.folder.unlock();
    });
  }

  /** Takes the lock if it is free, and rereads the names of all parts. */
  async #look(): Promise<void> {
    this.#looked = performance.now();
    const locked = await this.folder.lock().catch((error) => {
      this.#fail(error);
      return false;
    });
    const files = await this.folder.list();
    const uncleaned = locked ? await this.#clean(files) : 0;
    this.#secret = await this.#readSecret(files, locked);
    this.#index.clear();
    this.#bytes = uncleaned;
    for (const { name, bytes, usedAt } of files.sort((a, b) => a.usedAt - b.usedAt)) {
      const part = PART.exec(name)?.[1];
      if (part === undefined) continue;
      const entry = { bytes: fileBytes(bytes - HEAD_BYTES), usedAt, touchedAt: usedAt };
      this.#index.set(part, entry);
      this.#bytes += entry.bytes;
    }
    // From this point on, this process writes.
    if (locked) await this.#makeRoom(0).catch((error) => this.#fail(error));
    this.#writes = locked;
  }

  /** Removes unfinished files of killed processes. Returns the bytes of files that could not be removed. */
  async #clean(files: readonly Listed[]): Promise<number> {
    let left = 0;
    for (const { name, bytes } of files) {
      if (!UNFINISHED.test(name)) continue;
      await this.folder.remove(name).catch((error) => {
        this.#fail(error);
        left += fileBytes(bytes - HEAD_BYTES);
      });
    }
    return left;
  }

  /** Returns the folder's secret, and creates it if needed; empty if another process has to create it. */
  async #readSecret(files: readonly Listed[], locked: boolean): Promise<Uint8Array> {
    if (this.#secret.length > 0) return this.#secret;
    const there = files.some(({ name, bytes }) => name === SECRET && bytes === SECRET_BYTES);
    if (there) return (await this.folder.read(SECRET, SECRET_BYTES)) ?? new Uint8Array(0);
    const secret = crypto.getRandomValues(new Uint8Array(SECRET_BYTES));
    if (!locked) return new Uint8Array(0);
    try {
      await this.folder.remove(`${SECRET}.tmp`);
      await this.folder.write(`${SECRET}.tmp`, [secret]);
      await this.folder.rename(`${SECRET}.tmp`, SECRET);
      return secret;
    } catch (error) {
      this.#fail(error);
      return secret; // the secret is valid for this process only
    }
  }

  /** Pauses writing after a disk error. A lack of file descriptors is not a disk error. */
  #fail(error: unknown): void {
    if (isShortage(error)) return;
    this.#quietUntil = performance.now() + QUIET_MS;
    this.#warn(
      "write",
      `it cannot be written: ${reason(error)}; prompts are kept in memory only until that works again`,
    );
  }

  #warn(kind: string, message: string): void {
    if (this.#warned.has(kind)) return;
    this.#warned.add(kind);
    this.options.warn(`The prompt cache on disk: ${message}`);
  }
}

/** Returns whether the error means too many open files, in this process or the system. */
function isShortage(error: unknown): boolean {
  const { code } = error as { code?: string };
  return code === "EMFILE" || code === "ENFILE";
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
