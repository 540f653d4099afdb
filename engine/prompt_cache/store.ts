import { delay } from "@std/async/delay.js";
import { type Folder, type Listed, LOCK } from "./folder.ts";
import { HEAD_BYTES, headOf, partOf } from "./part_file.ts";
import type { PromptStore } from "./types.ts";

export interface StoreOptions {
  /** Most bytes that the folder's parts may take. */
  readonly limit: number;
  /** Nothing is given up that was written or used so recently: what finds no room then is not written. */
  readonly keepMs?: number;
  /** Told what an operator should know; once for each kind of trouble. */
  readonly warn: (message: string) => void;
}

interface Entry {
  /** As the file system counts them. */
  readonly bytes: number;
  /** When it was last used, and when its file was marked with that, in milliseconds since 1970. */
  usedAt: number;
  touchedAt: number;
}

interface Write {
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly settle: (there: boolean) => void;
}

const PART = /^([0-9a-f]{64})\.kv$/;
/** What a killed process may leave of a part. */
const UNFINISHED = /^[0-9a-f]{64}\.tmp$/;
const SECRET = "prompts.secret";
const SECRET_BYTES = 32;
/** Bytes that wait to be written, at most; more are not taken. */
const MOST_QUEUED = 128 * 2 ** 20;
/** Nothing is written for so long after a write that failed. */
const QUIET_MS = 60_000;
/** Files that are read at once: each takes a descriptor. */
const MOST_READS = 16;
/** How often the folder's lock is asked for, and its names are read again, where another process writes. */
const LOOK_MS = 15_000;
/** Files are marked as used at most so often: it is what the order of giving up is known by after a restart. */
const TOUCH_MS = 60_000;
const CLOSE_MS = 10_000;
/** How long the process that writes may take to make the secret. */
const SECRET_TRIES = 10;
const SECRET_PAUSE_MS = 50;
/** What a disk may do to anybody, at any time. */
const TROUBLES = new Set(["ENOSPC", "EDQUOT", "EIO", "EMFILE", "ENFILE"]);
const PAGE = 4096;

/** Whether a file is a part's. */
export function isPart(name: string): boolean {
  return PART.test(name);
}

/** Whether a file is of a store's making. */
export function isOwn(name: string): boolean {
  return isPart(name) || UNFINISHED.test(name) || [SECRET, `${SECRET}.tmp`, LOCK].includes(name);
}

/** The space that a file of a part takes. */
export function fileBytes(part: number): number {
  return Math.ceil((HEAD_BYTES + part) / PAGE) * PAGE;
}

/**
 * Parts of prompts in a folder, a file each. One process at a time writes and gives up what was used least recently; others
 * only read. A file that is damaged, torn or another's is a miss, and removed by the one that writes.
 */
export class FolderStore implements PromptStore {
  /** Least recently used first. */
  readonly #index = new Map<string, Entry>();
  #bytes = 0;
  #secret: Uint8Array = new Uint8Array(0);
  /** Whether this process writes. */
  #writes = false;
  #looked = 0;
  #looking = false;
  readonly #queue: Write[] = [];
  #queued = 0;
  readonly #touches = new Map<string, number>();
  #working: Promise<void> | undefined;
  #quietUntil = 0;
  /** How many files are being read, and who waits for that. */
  #reads = 0;
  readonly #readers: (() => void)[] = [];
  readonly #warned = new Set<string>();
  readonly #listeners = new Set<() => void>();
  #closed = false;

  private constructor(private readonly folder: Folder, private readonly options: StoreOptions) {}

  /** Opens the folder, whatever is in it. Throws where the folder cannot be had for a reason that lasts, such as its path. */
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

  /** What names are made with; empty where there is none yet. */
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
    return this.#writes && !this.#closed && Date.now() >= this.#quietUntil;
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
      if (!(error instanceof Deno.errors.NotFound)) {
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
      if (!this.#writes || now - entry.touchedAt < TOUCH_MS) continue;
      entry.touchedAt = now;
      this.#touches.set(names[i], now - i);
    }
    this.#work();
  }

  onRoom(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Resolves when all that was to be written is. */
  async settle(): Promise<void> {
    while (this.#working) await this.#working;
  }

  /** Writes what waits, for a while. */
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
      // What is not marked as used is given up too early, and nothing else.
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
        // What cannot be removed still counts.
        await this.folder.remove(`${name}.tmp`).then(() => this.#bytes -= size, () => {});
      }
    }
  }

  /** Gives up what was used least recently until so many bytes find room. */
  async #makeRoom(bytes: number): Promise<boolean> {
    const { limit, keepMs } = this.options;
    if (bytes > limit) return false;
    const kept = keepMs === undefined ? Infinity : Date.now() - keepMs;
    for (const [name, { usedAt }] of this.#index) {
      if (this.#bytes + bytes <= limit) return true;
      if (usedAt < kept) await this.#remove(name);
    }
    return this.#bytes + bytes <= limit;
  }

  /** A part that is not as it should be. */
  async #giveUp(name: string): Promise<void> {
    if (this.#writes) await this.#remove(name).catch((error) => this.#fail(error));
    else this.#forget(name);
  }

  /** Throws where the file cannot be removed: it is known no more, but counts. */
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
    if (this.#looking || this.#closed || Date.now() - this.#looked < LOOK_MS) return;
    this.#looking = true;
    this.#look().catch((error) => this.#warn("read", `it cannot be read: ${reason(error)}`)).finally(() => {
      this.#looking = false;
      if (this.#closed) this.folder.unlock();
    });
  }

  /** Takes the lock if it is free, and reads the names of what is there. */
  async #look(): Promise<void> {
    this.#looked = Date.now();
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
    // From here on this process writes.
    if (locked) await this.#makeRoom(0).catch((error) => this.#fail(error));
    this.#writes = locked;
  }

  /** Removes what killed processes have left; the space of what could not be removed. */
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

  /** The folder's secret; made where there is none. */
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
      return secret; // of use while the process lives
    }
  }

  /** A disk that is full or broken: nothing is written for a while. Files that cannot be opened are no such matter. */
  #fail(error: unknown): void {
    if (isShortage(error)) return;
    this.#quietUntil = Date.now() + QUIET_MS;
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

/** Too many open files, here or in the whole system. */
function isShortage(error: unknown): boolean {
  const { code } = error as { code?: string };
  return code === "EMFILE" || code === "ENFILE";
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
