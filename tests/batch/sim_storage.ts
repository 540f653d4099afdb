import { crc32 } from "node:zlib";
import type { Storage, StorageFile } from "../../jobs/journal/storage.ts";

/** The disk's fault at one call. */
export type Fault = "none" | "crash" | "ENOSPC" | "EIO" | "EMFILE";

/** Thrown by every call after the crash: the process is dead. */
export class SimCrash extends Error {
  override name = "SimCrash";
}

interface PendingWrite {
  readonly offset: number;
  /** Bytes of a write; undefined: truncate to `offset` bytes. */
  readonly bytes: Uint8Array | undefined;
}

/** A file's visible content, its durable content, and the writes since the last sync. */
class Inode {
  seen = new Uint8Array(0);
  durable = new Uint8Array(0);
  pending: PendingWrite[] = [];
  locked = false;
}

type NameChange =
  | { type: "link"; path: string; inode: Inode }
  | { type: "unlink"; path: string }
  | { type: "rename"; from: string; to: string };

/**
 * A file system in memory that may lose the same data as a real one. A crash keeps any part of the unsynced data: each
 * write whole, torn at any byte or not at all (with zeros if the size grew). It keeps any beginning of the unsynced
 * name changes, also for a file that was synced itself. A failed sync drops its data, and the next one succeeds, as in
 * real kernels.
 */
export class SimStorage implements Storage {
  /** Number of file system calls so far. */
  calls = 0;
  /** Log of every file system call, as `name path`. */
  readonly log: string[] = [];
  crashed = false;
  private names = new Map<string, Inode>();
  private durableNames = new Map<string, Inode>();
  private changes: NameChange[] = [];

  constructor(
    private random: () => number,
    private fault: (call: number, name: string) => Fault = () => "none",
  ) {}

  setFault(fault: (call: number, name: string) => Fault): void {
    this.fault = fault;
    this.calls = 0;
  }

  /** Adds a durable file. */
  put(path: string, content: Uint8Array | string): void {
    const inode = new Inode();
    inode.seen = inode.durable = typeof content === "string"
      ? new TextEncoder().encode(content)
      : content.slice();
    this.names.set(path, inode);
    this.durableNames.set(path, inode);
  }

  /** Changes the content of a file that may be open. */
  rewrite(path: string, content: string): void {
    const inode = this.names.get(path)!;
    inode.seen = inode.durable = new TextEncoder().encode(content);
  }

  bytes(path: string): Uint8Array | undefined {
    return this.names.get(path)?.seen.slice();
  }

  content(path: string): string | undefined {
    const bytes = this.bytes(path);
    return bytes && new TextDecoder().decode(bytes);
  }

  paths(): string[] {
    return [...this.names.keys()].sort();
  }

  /** Kills the process but not the machine, so that no write is lost. */
  kill(): void {
    for (const inode of this.names.values()) inode.locked = false;
    this.crashed = false;
  }

  /** Cuts the power and restores it. */
  powerCut(): void {
    const names = new Map(this.durableNames);
    const kept = Math.floor(this.random() * (this.changes.length + 1));
    for (const change of this.changes.slice(0, kept)) applyChange(names, change);
    this.changes = [];
    this.names = names;
    this.durableNames = new Map(names);
    for (const inode of new Set(names.values())) {
      for (const write of inode.pending) inode.durable = this.keepSome(inode.durable, write);
      inode.pending = [];
      inode.seen = inode.durable;
      inode.locked = false;
    }
    this.crashed = false;
  }

  async open(path: string, mode: "read" | "edit" | "replace"): Promise<StorageFile> {
    await this.call(`open-${mode}`, path);
    let inode = this.names.get(path);
    if (inode === undefined) {
      if (mode === "read") throw new Deno.errors.NotFound(path);
      inode = new Inode();
      this.change({ type: "link", path, inode });
    }
    if (mode === "replace") cut(inode, 0);
    return this.file(path, inode);
  }

  async stat(path: string) {
    await this.call("stat", path);
    if (path === ".") return { size: 0, isFile: false, version: "" };
    const inode = this.names.get(path);
    return inode && { size: inode.seen.length, isFile: true, version: `${crc32(inode.seen)}` };
  }

  async rename(from: string, to: string): Promise<void> {
    await this.call("rename", to);
    if (!this.names.has(from)) throw new Deno.errors.NotFound(from);
    this.change({ type: "rename", from, to });
  }

  async remove(path: string): Promise<void> {
    await this.call("remove", path);
    this.change({ type: "unlink", path });
  }

  async syncFolderOf(path: string): Promise<void> {
    const fault = await this.call("sync-folder", path, ["EIO", "ENOSPC"]);
    if (fault !== "none") {
      this.changes = [];
      throw systemError("EIO");
    }
    for (const change of this.changes) applyChange(this.durableNames, change);
    this.changes = [];
  }

  private file(path: string, inode: Inode): StorageFile {
    let ownLock = false;
    let closed = false;
    const call = (name: string, own: Fault[] = []) => {
      if (closed) throw new Deno.errors.BadResource(path);
      return this.call(name, path, own);
    };
    return {
      read: async (buffer, offset) => {
        await call("read");
        const found = inode.seen.subarray(offset, offset + buffer.length);
        // A read may return fewer bytes than requested.
        const bytes = found.subarray(
          0,
          Math.max(Math.min(1, found.length), Math.floor(found.length * this.random())),
        );
        buffer.set(bytes);
        return bytes.length;
      },
      write: async (bytes, offset) => {
        const fault = await call("write", ["ENOSPC", "EIO", "crash"]);
        const done = fault === "none"
          ? bytes
          : bytes.subarray(0, Math.floor((bytes.length + 1) * this.random()));
        const write = { offset, bytes: done.slice() };
        inode.seen = apply(inode.seen, write);
        inode.pending.push(write);
        if (fault === "crash") throw this.crash();
        if (fault !== "none") throw systemError(fault);
      },
      truncate: async (size) => {
        await call("truncate");
        cut(inode, size);
      },
      sync: async () => {
        const fault = await call("sync", ["EIO", "ENOSPC"]);
        if (fault !== "none") {
          inode.pending = [];
          throw systemError("EIO");
        }
        inode.durable = inode.pending.reduce(apply, inode.durable);
        inode.pending = [];
      },
      size: async () => {
        await call("size");
        return inode.seen.length;
      },
      tryLock: async () => {
        await call("lock");
        if (inode.locked) return false;
        return inode.locked = ownLock = true;
      },
      close: () => {
        closed = true;
        if (ownLock) inode.locked = false;
      },
    };
  }

  /** Counts a call and applies its fault, unless the call's own code applies that fault. */
  private async call(name: string, path: string, own: Fault[] = []): Promise<Fault> {
    await Promise.resolve();
    if (this.crashed) throw new SimCrash();
    const fault = this.fault(this.calls++, name);
    this.log.push(`${name} ${path}`);
    if (own.includes(fault)) return fault;
    if (fault === "crash") throw this.crash();
    // A read needs no space.
    // Only opening a file or a folder needs a descriptor.
    if (fault === "EMFILE" && /^(open|sync-folder)/.test(name)) throw systemError(fault);
    if (fault === "EIO" || (fault === "ENOSPC" && /^(open-edit|open-replace|rename)/.test(name))) {
      throw systemError(fault);
    }
    return "none";
  }

  private crash(): SimCrash {
    this.crashed = true;
    return new SimCrash();
  }

  private change(change: NameChange): void {
    applyChange(this.names, change);
    this.changes.push(change);
  }

  private keepSome(
    content: Uint8Array<ArrayBuffer>,
    { offset, bytes }: PendingWrite,
  ): Uint8Array<ArrayBuffer> {
    const luck = this.random();
    if (luck < 0.3) return content;
    if (bytes === undefined || luck < 0.5) return apply(content, { offset, bytes });
    const kept = bytes.subarray(0, Math.floor(bytes.length * this.random()));
    const torn = apply(content, { offset, bytes: kept });
    // The size may be durable before the bytes.
    return luck < 0.75 ? torn : apply(torn, { offset: offset + bytes.length, bytes: new Uint8Array(0) });
  }
}

function applyChange(names: Map<string, Inode>, change: NameChange): void {
  if (change.type === "link") names.set(change.path, change.inode);
  else if (change.type === "unlink") names.delete(change.path);
  else {
    const inode = names.get(change.from);
    if (inode === undefined) return;
    names.set(change.to, inode);
    names.delete(change.from);
  }
}

function cut(inode: Inode, size: number): void {
  const write = { offset: size, bytes: undefined };
  inode.seen = apply(inode.seen, write);
  inode.pending.push(write);
}

function apply(content: Uint8Array<ArrayBuffer>, { offset, bytes }: PendingWrite): Uint8Array<ArrayBuffer> {
  const size = bytes === undefined ? offset : Math.max(content.length, offset + bytes.length);
  const result = new Uint8Array(size);
  result.set(content.subarray(0, size));
  if (bytes !== undefined) result.set(bytes, offset);
  return result;
}

const MESSAGES = {
  EIO: "Input/output error",
  ENOSPC: "No space left on device",
  EMFILE: "Too many open files",
};

function systemError(code: keyof typeof MESSAGES): Error {
  return Object.assign(new Error(MESSAGES[code]), { code });
}

/** A small seeded generator of numbers in [0, 1) (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
