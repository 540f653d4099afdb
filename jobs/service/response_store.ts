import { concat } from "@std/bytes/concat.js";
import { join } from "@std/path";
import { finish, parseLargeJson, withPauses, writeLargeJson } from "../../engine/mod.ts";
import { isSet, steadyClock } from "./clock.ts";
import { reasonOf } from "./live_batch.ts";
import { Pause } from "../run/pause.ts";

const MB = 2 ** 20;
/** Default maximum bytes of a response store. */
export const RESPONSE_BYTES = { disk: 512 * MB, memory: 64 * MB } as const;
/** Maximum bytes of a stored response, and of all stored responses in a conversation. */
export const MOST_RESPONSE_BYTES = 16 * MB;
const MAX_AGE_MS = 30 * 24 * 3600 * 1000;
/** Bytes of a disk block; files occupy whole blocks. */
const BLOCK_BYTES = 4096;

/** A response, and the input items that it answers. */
export interface StoredResponse {
  /** Id of the response that this one continues. */
  readonly previous: string | null;
  /** The response without its output. */
  readonly head: Readonly<Record<string, unknown>>;
  readonly input: readonly StoredItem[];
  readonly output: readonly StoredItem[];
}

export interface StoredItem {
  readonly id?: string | null;
  readonly type?: string;
}

/** The stored responses of one owner, which other owners cannot find. */
export interface OwnedResponses {
  /**
   * Stores a response. Returns false if the response exceeds MOST_RESPONSE_BYTES or cannot be stored. The operator gets
   * a report of a failed write.
   */
  save(id: string, response: StoredResponse): Promise<boolean>;
  /** Returns a response and its size in bytes, or undefined if it is not stored. */
  read(id: string): Promise<StoredResponse & { readonly bytes: number } | undefined>;
  /** Removes a response. Returns false if it is not stored. */
  remove(id: string): Promise<boolean>;
}

export interface ResponseStoreOptions {
  /** Maximum bytes of all responses; 0 stores none. */
  readonly maxBytes?: number;
  /** Receives the reason why responses cannot be stored. */
  readonly report?: (error: unknown) => void;
  /** Clock in Unix milliseconds; by default one that cannot be set. */
  readonly now?: () => number;
}

/** Returns the id of a new response. The id begins with the time, so that ids sort by age. */
export function newResponseId(now = Date.now()): string {
  const random = crypto.randomUUID().replaceAll("-", "").slice(12);
  return `resp_${now.toString(16).padStart(12, "0")}${random}`;
}

function timeOf(id: string): number {
  return parseInt(id.slice(5, 17), 16);
}

/** The stored responses of one owner. */
interface Stock {
  /** Bytes of each response by id, oldest first. */
  readonly sizes: Map<string, number>;
  /** Number of bytes that the owner's responses occupy. */
  taken: number;
}

/**
 * Stores responses for 30 days, within a bound of bytes. If there are too many bytes, it deletes the oldest responses
 * of the owner with the most bytes, so an owner cannot displace the responses of others. Each response is a file of
 * JSON lines, because reading and writing files does not block the event loop. A database in this thread would block
 * it.
 */
export class ResponseStore {
  readonly #stocks = new Map<string, Stock>();
  readonly #maxBytes: number;
  readonly #now: () => number;
  readonly #openedAt: number;
  #stored = 0;
  /** Whether the last response could not be stored and the operator was told. */
  #isFailing = false;

  private constructor(
    private readonly shelf: Shelf,
    files: readonly StoredFile[],
    private readonly options: ResponseStoreOptions & { readonly maxBytes: number },
  ) {
    for (const file of files) this.#add(file);
    this.#maxBytes = options.maxBytes;
    this.#now = options.now ?? steadyClock();
    this.#openedAt = this.#now();
  }

  /** Opens the store in a folder, which is created if it is missing. */
  static async open(path: string, options: ResponseStoreOptions = {}): Promise<ResponseStore> {
    const { maxBytes = RESPONSE_BYTES.disk } = options;
    const { shelf, files } = await openFolder(path);
    const store = new ResponseStore(shelf, files, { ...options, maxBytes });
    await store.dropOld();
    return store;
  }

  /** Returns a store in memory, which ends with the process. */
  static inMemory(options: ResponseStoreOptions = {}): ResponseStore {
    const maxBytes = Math.min(options.maxBytes ?? Infinity, RESPONSE_BYTES.memory);
    return new ResponseStore(new Memory(), [], { ...options, maxBytes });
  }

  /** Returns the owner's responses, or undefined if the server stores none. */
  of(owner: string): OwnedResponses | undefined {
    if (this.#maxBytes === 0) return undefined;
    return {
      save: (id, response) => this.#save(owner, id, response),
      read: (id) => this.#read(owner, id),
      remove: async (id) => await this.#read(owner, id) !== undefined && await this.#drop(owner, id),
    };
  }

  /** Removes responses that are too old, and the oldest ones while there are too many bytes. */
  async dropOld(): Promise<void> {
    for (const [owner, { sizes }] of this.#stocks) {
      for (const id of sizes.keys()) {
        if (!this.#isOld(id)) break;
        await this.#drop(owner, id);
      }
    }
    while (this.#stored > this.#maxBytes) {
      const [owner, { sizes }] = [...this.#stocks].reduce((one, other) =>
        other[1].taken > one[1].taken ? other : one
      );
      await this.#drop(owner, sizes.keys().next().value!);
    }
  }

  #add({ owner, id, bytes }: StoredFile): void {
    const stock = this.#stocks.get(owner) ?? { sizes: new Map(), taken: 0 };
    this.#stocks.set(owner, stock);
    stock.sizes.set(id, bytes);
    stock.taken += this.shelf.taken(bytes);
    this.#stored += this.shelf.taken(bytes);
  }

  /**
   * Returns whether a response is too old. If it was stored before the clock was set, its age counts from the start of
   * this process.
   */
  #isOld(id: string): boolean {
    const storedAt = isSet(timeOf(id)) ? timeOf(id) : this.#openedAt;
    return storedAt <= this.#now() - MAX_AGE_MS;
  }

  async #save(owner: string, id: string, response: StoredResponse): Promise<boolean> {
    try {
      const bytes = await encode(owner, response);
      if (!bytes) return false;
      const taken = this.shelf.taken(bytes.length);
      if (taken > this.#maxBytes) {
        throw new Error(`it takes ${taken} bytes, and all together may take ${this.#maxBytes}`);
      }
      const file = { owner, id, bytes: bytes.length };
      await this.shelf.write(fileName(file), bytes);
      this.#add(file);
      this.#isFailing = false;
      await this.dropOld();
      return this.#stocks.get(owner)?.sizes.has(id) ?? false;
    } catch (error) {
      const { what, cause } = reasonOf(error);
      const message = `Responses cannot be stored, so no request can continue them: ${what}`;
      if (!this.#isFailing) this.options.report?.(new Error(message, { cause }));
      this.#isFailing = true;
      return false;
    }
  }

  async #read(owner: string, id: string) {
    const size = this.#stocks.get(owner)?.sizes.get(id);
    if (size === undefined || this.#isOld(id)) return undefined;
    try {
      const bytes = await this.shelf.read(fileName({ owner, id, bytes: size }));
      const response = await decode(owner, bytes);
      return response && { ...response, bytes: size };
    } catch (error) {
      // The file was removed meanwhile, or a power failure truncated it.
      if (this.#stocks.get(owner)?.sizes.has(id)) {
        this.options.report?.(new Error(`Response ${id} cannot be read`, { cause: error }));
      }
      return undefined;
    }
  }

  async #drop(owner: string, id: string): Promise<boolean> {
    const stock = this.#stocks.get(owner);
    const bytes = stock?.sizes.get(id);
    if (stock === undefined || bytes === undefined) return false;
    stock.sizes.delete(id);
    if (stock.sizes.size === 0) this.#stocks.delete(owner);
    stock.taken -= this.shelf.taken(bytes);
    this.#stored -= this.shelf.taken(bytes);
    await this.shelf.remove(fileName({ owner, id, bytes }));
    return true;
  }
}

/** The first line of a file. The other lines are items. */
interface Head extends Pick<StoredResponse, "previous" | "head"> {
  readonly owner: string;
  /** Number of input items; the output items follow them. */
  readonly inputs: number;
}

const LF = 0x0a;

/** Number of characters to encode at once. */
const CHARACTERS = 1 << 20;

/** Returns the content of a response's file, or undefined if the response is too large. */
async function encode(
  owner: string,
  { previous, head, input, output }: StoredResponse,
): Promise<Uint8Array | undefined> {
  const first: Head = { owner, previous, inputs: input.length, head };
  const parts: Uint8Array[] = [];
  const pause = new Pause();
  let written = 0;
  for (const value of [first, ...input, ...output]) {
    const text = `${await withPauses(() => finish(writeLargeJson(value)))}\n`;
    written += text.length;
    if (written > MOST_RESPONSE_BYTES) return undefined;
    for (let start = 0, end = 0; start < text.length; start = end) {
      end = start + CHARACTERS;
      if (/^[\ud800-\udbff]$/.test(text.charAt(end - 1))) end++; // do not split a surrogate pair
      parts.push(new TextEncoder().encode(text.slice(start, end)));
      await pause.now();
    }
  }
  return concat(parts);
}

/** Returns the response in a file; undefined for another owner's response. */
async function decode(owner: string, bytes: Uint8Array): Promise<StoredResponse | undefined> {
  const values: unknown[] = [];
  const pause = new Pause();
  for (let start = 0; start < bytes.length;) {
    const end = bytes.indexOf(LF, start);
    if (end < 0) throw new Error("its last line is incomplete");
    const line = bytes.subarray(start, end);
    values.push(await withPauses(() => finish(parseLargeJson(line))));
    if (start === 0 && (values[0] as Head).owner !== owner) return undefined;
    start = end + 1;
    await pause.now();
  }
  const [{ previous, head, inputs }, ...items] = values as [Head, ...StoredItem[]];
  return { previous, head, input: items.slice(0, inputs), output: items.slice(inputs) };
}

interface StoredFile {
  readonly owner: string;
  readonly id: string;
  readonly bytes: number;
}

/** Returns a file's name, which contains owner and size, so that one listing of the folder shows all. */
function fileName({ owner, id, bytes }: StoredFile): string {
  return `${id}.${owner}.${bytes}`;
}

const FILE = /^(resp_[0-9a-f]{32})\.([0-9a-f]*)\.(\d{1,12})$/;

/** A storage for the bytes of stored responses: a folder or memory. */
interface Shelf {
  /** Returns the number of bytes that content of this size occupies. */
  taken(bytes: number): number;
  write(name: string, bytes: Uint8Array): Promise<void>;
  read(name: string): Promise<Uint8Array>;
  remove(name: string): Promise<void>;
}

class Memory implements Shelf {
  readonly #contents = new Map<string, Uint8Array>();

  taken(bytes: number): number {
    return bytes;
  }

  write(name: string, bytes: Uint8Array): Promise<void> {
    this.#contents.set(name, bytes);
    return Promise.resolve();
  }

  read(name: string): Promise<Uint8Array> {
    const bytes = this.#contents.get(name);
    return bytes ? Promise.resolve(bytes) : Promise.reject(new Error("it is gone"));
  }

  remove(name: string): Promise<void> {
    this.#contents.delete(name);
    return Promise.resolve();
  }
}

async function openFolder(path: string) {
  await Deno.mkdir(path, { recursive: true, mode: 0o700 });
  const shelf = new Folder(path);
  const files: StoredFile[] = [];
  for await (const { name } of Deno.readDir(path)) {
    const [, id, owner, bytes] = FILE.exec(name) ?? [];
    if (id !== undefined) files.push({ owner, id, bytes: Number(bytes) });
    else if (name.endsWith(PARTIAL)) await shelf.remove(name); // left by a killed process
  }
  return { shelf, files: files.sort((one, other) => one.id < other.id ? -1 : 1) };
}

const PARTIAL = ".partial";

class Folder implements Shelf {
  constructor(private readonly path: string) {}

  taken(bytes: number): number {
    return Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;
  }

  /**
   * Writes a file under a partial name and renames it when complete, so that a killed process leaves no incomplete
   * file.
   */
  async write(name: string, bytes: Uint8Array): Promise<void> {
    const path = join(this.path, name);
    try {
      await Deno.writeFile(path + PARTIAL, bytes, { mode: 0o600 });
      await Deno.rename(path + PARTIAL, path);
    } catch (error) {
      await this.remove(name + PARTIAL).catch(() => {});
      throw error;
    }
  }

  async read(name: string): Promise<Uint8Array> {
    return await Deno.readFile(join(this.path, name));
  }

  async remove(name: string): Promise<void> {
    await Deno.remove(join(this.path, name)).catch((error) => {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    });
  }
}
