import { dirname, join } from "@std/path";
import { z } from "zod";
import type { RemotePiece } from "./choices.ts";
import { syncFolder, writeWhole } from "./disk.ts";
import { PullError } from "./errors.ts";
import { Ranges } from "./ranges.ts";

/** Subfolder for unfinished downloads. Models cannot have this name, so none is offered from it. */
const FOLDER = ".unfinished";
const STATE = "state.json";
const LOCK = "lock";
/** File that reserves space to save the last state on a full disk. */
const RESERVE = "reserve";
const RESERVE_BYTES = 64 * 1024;

/** A piece of a download, and its received bytes. */
export interface Piece {
  readonly remote: RemotePiece;
  /** The piece's file in the download's folder. */
  readonly path: string;
  /** Size in bytes, from the hub's listing or its first response. */
  size: number | undefined;
  readonly done: Ranges;
  /** Each host's identifier for this version of the file (ETag, or else the date). */
  readonly validators: Map<string, string>;
}

const COUNT = z.number().int().min(0);
const STATE_SCHEMA = z.object({
  source: z.string(),
  pieces: z.array(z.object({
    address: z.string(),
    file: z.string(),
    offset: COUNT,
    size: COUNT.optional(),
    sha256: z.string().optional(),
    validators: z.record(z.string(), z.string()),
    done: z.array(z.tuple([COUNT, COUNT])),
  })),
});
type State = z.infer<typeof STATE_SCHEMA>;

/** An unfinished download: its files, the bytes received so far, and a lock against other processes. */
export class Unfinished {
  pieces: Piece[] = [];
  #source = "";
  #saved = "";

  private constructor(readonly name: string, readonly folder: string, private readonly lock: Deno.FsFile) {}

  /** Opens or creates a download. Throws PullError(PULL_BUSY) if another process holds it. */
  static async open(models: string, name: string): Promise<Unfinished> {
    const folder = join(models, FOLDER, name);
    while (true) {
      await Deno.mkdir(folder, { recursive: true });
      const path = join(folder, LOCK);
      const lock = await openAny(path);
      if (lock === undefined) continue; // removed between the two calls
      if (!await lock.tryLock(true)) {
        lock.close();
        const process = (await Deno.readTextFile(path).catch(() => "")).trim();
        throw new PullError(
          "PULL_BUSY",
          `Another process${
            process && ` (${process})`
          } is pulling "${name}": wait for it, or stop it and try again`,
        );
      }
      // The previous owner may have removed the folder together with the locked file.
      const [own, there] = [await lock.stat(), await Deno.stat(path).catch(() => undefined)];
      if (there?.ino === own.ino) {
        await lock.truncate();
        await lock.write(new TextEncoder().encode(`PID ${Deno.pid}\n`));
        return new Unfinished(name, folder, lock);
      }
      lock.close();
    }
  }

  /**
   * Sets the pieces to download and reuses bytes that are already here. Returns the number of reused bytes, and of
   * dropped bytes of another version.
   */
  async begin(source: string, remotes: readonly RemotePiece[]): Promise<{ kept: number; dropped: number }> {
    const before = this.#source === "" ? await this.#load() : this.#state();
    this.#source = source;
    const pieces: Piece[] = [];
    const lost = { kept: 0, dropped: 0 };
    for (const remote of remotes) {
      const old = before.pieces.find(({ file, offset }) => file === remote.file && offset === remote.offset);
      const same = old !== undefined && isSame(old, remote) &&
        await hasBytes(join(this.folder, remote.file), old);
      const done = new Ranges(same ? old.done : []);
      if (same) lost.kept += done.bytes;
      else if (old) lost.dropped += new Ranges(old.done).bytes;
      pieces.push({
        remote,
        path: join(this.folder, remote.file),
        size: remote.size ?? (same ? old.size : undefined),
        done,
        validators: new Map(same ? Object.entries(old.validators) : []),
      });
    }
    this.pieces = pieces;
    await this.#removeOthers();
    await Deno.writeFile(join(this.folder, RESERVE), new Uint8Array(RESERVE_BYTES));
    await this.save();
    return lost;
  }

  /** Saves the progress, after syncing the bytes to disk. */
  async save(): Promise<void> {
    const state = JSON.stringify(this.#state());
    if (state === this.#saved) return;
    for (const path of new Set(this.pieces.map(({ path }) => path))) {
      using file = await Deno.open(path, { write: true, create: true });
      await file.syncData();
    }
    await writeWhole(join(this.folder, STATE), state);
    this.#saved = state;
  }

  /** Saves the progress at the end, even on a full disk. Ignores errors, which were reported before. */
  async saveLast(): Promise<void> {
    await Deno.remove(join(this.folder, RESERVE)).catch(() => {});
    await this.save().catch(() => {});
  }

  /** Returns the download's progress and origin. */
  #state(): State {
    const pieces = this.pieces.map(({ remote, size, done, validators }) => ({
      address: `${remote.url.origin}${remote.url.pathname}`,
      file: remote.file,
      offset: remote.offset,
      size,
      sha256: remote.sha256,
      validators: Object.fromEntries(validators),
      done: done.pairs.map(([start, end]): [number, number] => [start, end]),
    }));
    return { source: this.#source, pieces };
  }

  async #load(): Promise<State> {
    return await readState(this.folder) ?? { source: "", pieces: [] };
  }

  async #removeOthers(): Promise<void> {
    const names = new Set([LOCK, STATE, ...this.pieces.map(({ remote }) => remote.file)]);
    for await (const { name } of Deno.readDir(this.folder)) {
      if (!names.has(name)) await Deno.remove(join(this.folder, name), { recursive: true });
    }
  }

  /** Removes the download's folder and its contents. */
  async remove(): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
    await Deno.remove(dirname(this.folder)).catch(() => {}); // only if it is empty
    await syncFolder(dirname(dirname(this.folder)));
  }

  /** Removes the folder if it has no unfinished download. */
  async removeIfNew(): Promise<void> {
    if (this.#source === "" && await readState(this.folder) === undefined) await this.remove();
  }

  /** Releases the lock. */
  close(): void {
    this.lock.close();
  }
}

async function openAny(path: string): Promise<Deno.FsFile | undefined> {
  try {
    return await Deno.open(path, { read: true, write: true, create: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

async function readState(folder: string): Promise<State | undefined> {
  try {
    return STATE_SCHEMA.parse(JSON.parse(await Deno.readTextFile(join(folder, STATE))));
  } catch {
    return undefined; // missing, or another version: no bytes can be reused
  }
}

/** Returns whether bytes of an earlier run can be reused. Without a hash, the server must identify the version. */
function isSame(old: State["pieces"][number], remote: RemotePiece): boolean {
  if (remote.sha256 !== undefined) return old.sha256 === remote.sha256 && old.size === remote.size;
  const address = `${remote.url.origin}${remote.url.pathname}`;
  return old.sha256 === undefined && old.address === address && Object.keys(old.validators).length > 0 &&
    (remote.size === undefined || old.size === remote.size);
}

/** Returns whether the file is at least as long as the saved state says. */
async function hasBytes(path: string, { done, offset }: State["pieces"][number]): Promise<boolean> {
  const end = Math.max(0, ...done.map(([, end]) => offset + end));
  const info = await Deno.lstat(path).catch(() => undefined);
  return end === 0 || (info?.isFile === true && info.size >= end);
}

/** An unfinished download. */
export interface UnfinishedReport {
  readonly name: string;
  readonly source: string;
  readonly done: number;
  /** Size of the download in bytes; undefined until a response of the hub shows it. */
  readonly bytes: number | undefined;
}

/** Returns the unfinished downloads in a folder of models. */
export async function listUnfinished(models: string): Promise<UnfinishedReport[]> {
  const reports: UnfinishedReport[] = [];
  const folder = join(models, FOLDER);
  try {
    for await (const { name, isDirectory } of Deno.readDir(folder)) {
      const state = isDirectory ? await readState(join(folder, name)) : undefined;
      if (state === undefined) continue;
      const done = state.pieces.reduce((sum, { done }) => sum + new Ranges(done).bytes, 0);
      const sizes = state.pieces.map(({ size }) => size);
      const bytes = sizes.some((size) => size === undefined) ? undefined : sizes.reduce((a, b) => a! + b!, 0);
      reports.push({ name, source: state.source, done, bytes });
    }
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  return reports.sort((a, b) => a.name < b.name ? -1 : 1);
}

/** Removes an unfinished download. Returns false if there is none. Throws PullError(PULL_BUSY). */
export async function removeUnfinished(models: string, name: string): Promise<boolean> {
  const info = await Deno.lstat(join(models, FOLDER, name)).catch(() => undefined);
  if (!info?.isDirectory) return false;
  const unfinished = await Unfinished.open(models, name);
  try {
    await unfinished.remove();
  } finally {
    unfinished.close();
  }
  return true;
}
