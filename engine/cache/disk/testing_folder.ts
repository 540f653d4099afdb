import type { Folder, Listed } from "./folder.ts";

/** A file of a folder in memory. */
interface MemoryFile {
  bytes: Uint8Array<ArrayBuffer>;
  usedAt: number;
}

/** The fault of a simulated system call: an error name, or "kill" for the end of the process. */
export type Fault = string | undefined;

class SystemError extends Error {
  constructor(readonly code: string) {
    super(`${code} (simulated)`);
  }
}

/** A folder in memory whose calls fail as a test demands. Several simulated processes may share it. */
export class MemoryFolder implements Folder {
  /** Log of all calls that changed the folder, as `name file`. */
  readonly log: string[] = [];
  /** Promise that each call awaits, so that tests can delay it. */
  gate: (call: string, file: string) => Promise<unknown> = () => Promise.resolve();
  fault: (call: string, file: string) => Fault = () => undefined;
  #mine = false;

  constructor(
    readonly files = new Map<string, MemoryFile>(),
    private readonly locks: { held: boolean } = { held: false },
  ) {}

  /** Returns the same folder as another process sees it. */
  elsewhere(): MemoryFolder {
    return new MemoryFolder(this.files, this.locks);
  }

  /**
   * Returns the folder after the process was killed: the lock is free, and unfinished calls have no effect.
   */
  afterKill(): MemoryFolder {
    return new MemoryFolder(new Map([...this.files].map(([name, file]) => [name, { ...file }])));
  }

  get bytes(): number {
    return [...this.files.values()].reduce(
      (sum, { bytes }) => sum + Math.ceil(bytes.length / 4096) * 4096,
      0,
    );
  }

  /** Names of part files. */
  get parts(): string[] {
    return [...this.files.keys()].filter((name) => name.endsWith(".kv"));
  }

  async make(): Promise<void> {
    await this.#call("make", "");
  }

  async list(): Promise<Listed[]> {
    await this.#call("list", "");
    return [...this.files].map(([name, { bytes, usedAt }]) => ({ name, bytes: bytes.length, usedAt }));
  }

  async read(name: string, bytes: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    await this.#call("read", name);
    const file = this.files.get(name);
    if (!file) throw Object.assign(new Error(name), { code: "ENOENT" });
    return file.bytes.length === bytes ? file.bytes.slice() : undefined;
  }

  async write(name: string, pieces: readonly Uint8Array[]): Promise<void> {
    const bytes = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const piece of pieces) {
      bytes.set(piece, at);
      at += piece.length;
    }
    const usedAt = Date.now();
    // A write that fails or is killed may leave any prefix.
    this.files.set(name, { bytes: bytes.slice(0, Math.floor(bytes.length / 2)), usedAt });
    await this.#call("write", name);
    this.files.set(name, { bytes, usedAt });
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#call("rename", to);
    this.files.set(to, this.files.get(from)!);
    this.files.delete(from);
  }

  async remove(name: string): Promise<void> {
    await this.#call("remove", name);
    this.files.delete(name);
  }

  async touch(name: string, at: number): Promise<void> {
    await this.#call("touch", name);
    const file = this.files.get(name);
    if (file) file.usedAt = at;
  }

  async sync(names: readonly string[]): Promise<void> {
    for (const name of names) await this.#call("sync", name);
    await this.#call("sync", "");
  }

  async lock(): Promise<boolean> {
    await this.#call("lock", "");
    if (this.locks.held) return this.#mine;
    this.#mine = this.locks.held = true;
    return true;
  }

  unlock(): void {
    if (this.#mine) this.locks.held = false;
    this.#mine = false;
  }

  async #call(call: string, file: string): Promise<void> {
    if (!["list", "read", "make"].includes(call)) this.log.push(`${call} ${file}`);
    await this.gate(call, file);
    const fault = this.fault(call, file);
    if (fault) throw new SystemError(fault);
  }
}
