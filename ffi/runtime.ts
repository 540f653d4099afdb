/** Differences between Deno and Node, hidden from the rest of the program. */
import { shipped } from "../package.ts";

/** Parameters of every export: a handle, input and its length, output and its length. */
export const parameters = ["u64", "buffer", "usize", "buffer", "usize"] as const;

/** One export of a library. `nonblocking` calls run on another thread and return a promise. */
export type Export = Readonly<
  { name?: string; parameters: typeof parameters; result: "i32"; nonblocking?: boolean }
>;

/**
 * Calls an export. Buffers are lent until the call returns or its promise settles: they must not be changed,
 * transferred or resized.
 */
export type Call = (
  handle: bigint,
  input: Uint8Array<ArrayBuffer>,
  inputBytes: bigint,
  output: Uint8Array<ArrayBuffer>,
  outputBytes: bigint,
) => number | Promise<number>;

/** An open library. */
export interface OpenLibrary<Symbols> {
  readonly symbols: Readonly<Record<keyof Symbols, Call>>;
  /** Closes the library. No call may be running or follow. */
  close(): void;
}

/** A runtime that can load native libraries. */
export interface Runtime {
  /** Whether each nonblocking call starts at once. If calls may be queued, no call may wait for another call. */
  readonly startsCallsAtOnce: boolean;
  /** Opens a library file. Throws NoLoader, Deno's NotCapable, or the system's error. */
  openLibrary<Symbols extends Record<string, Export>>(path: string, symbols: Symbols): OpenLibrary<Symbols>;
  /**
   * Takes the exclusive lock of an existing file, which ends with the process or with the returned function. Returns
   * undefined if another process, or this one, holds it. Deno and Node see each other's locks.
   */
  lockFile(path: string, flags: "r" | "r+"): (() => void) | undefined;
}

/** Thrown if Node lacks the package that loads libraries. */
export class NoLoader extends Error {
  override name = "NoLoader";
}

/** Returns the runtime of this process; undefined in a browser. */
export function thisRuntime(): Runtime | undefined {
  if (typeof Deno !== "undefined") return denoRuntime;
  return globalThis.process?.versions?.node === undefined ? undefined : nodeRuntime;
}

const denoRuntime: Runtime = {
  startsCallsAtOnce: true,

  openLibrary<Symbols extends Record<string, Export>>(path: string, symbols: Symbols) {
    return Deno.dlopen(path, symbols) as unknown as OpenLibrary<Symbols>;
  },

  lockFile(path, flags) {
    const file = Deno.openSync(path, { read: true, write: flags === "r+" });
    if (tryOrClose(() => file.tryLockSync(true), () => file.close())) return () => file.close();
    file.close();
  },
};

/** The part of koffi's interface that is used here. */
export interface Koffi {
  /** Loads a library; `null` stands for this process. */
  load(path: string | null): KoffiLibrary;
  /** Returns the error number of the last synchronous call. */
  errno(): number;
  readonly os: { readonly errno: Readonly<Record<string, number>> };
}

interface KoffiLibrary {
  func(name: string, result: string, parameters: readonly string[]): KoffiFunction;
  unload(): void;
}

interface KoffiFunction {
  (...args: readonly unknown[]): number;
  /** Calls the function on another thread. The last argument is a callback. */
  async(...args: readonly unknown[]): void;
}

const KOFFI_TYPES = { u64: "uint64_t", buffer: "uint8_t *", usize: "size_t", i32: "int32_t" } as const;
/** Maximum calls that run at once. koffi refuses more than 256, including those of its other users. */
const CALLS_AT_ONCE = 64;
/** Constants of flock(2), on Linux and macOS. */
const LOCK_EXCLUSIVE_NOW = 2 | 4;

/** Node calls libraries through koffi, on libuv's thread pool: four threads, or UV_THREADPOOL_SIZE. */
export function createNodeRuntime(koffi: () => Koffi): Runtime {
  const turns = new Turns(CALLS_AT_ONCE);
  /** Arguments of running calls: koffi receives pointers and does not keep the buffers alive. */
  const lent = new Set<Parameters<Call>>();
  const nonblocking = (call: KoffiFunction) => async (...args: Parameters<Call>) => {
    lent.add(args);
    try {
      return await turns.take(() =>
        new Promise<number>((resolve, reject) => {
          call.async(
            ...args,
            (error: unknown, result: number) => error === null ? resolve(result) : reject(error),
          );
        })
      );
    } finally {
      lent.delete(args);
    }
  };
  return {
    startsCallsAtOnce: false,

    openLibrary<Symbols extends Record<string, Export>>(path: string, symbols: Symbols) {
      const library = koffi().load(path);
      const calls = Object.entries(symbols).map(([name, symbol]) => {
        const types = symbol.parameters.map((type) => KOFFI_TYPES[type]);
        const call = library.func(symbol.name ?? name, KOFFI_TYPES[symbol.result], types);
        return [name, symbol.nonblocking ? nonblocking(call) : call];
      });
      return {
        symbols: Object.fromEntries(calls) as Record<keyof Symbols, Call>,
        close: () => library.unload(),
      };
    },

    lockFile(path, flags) {
      const { openSync, closeSync } = process.getBuiltinModule("node:fs");
      const system = koffi();
      const flock = system.load(null).func("flock", "int", ["int", "int"]);
      const file = openSync(path, flags);
      const close = () => closeSync(file);
      if (flock(file, LOCK_EXCLUSIVE_NOW) === 0) return close;
      const failure = system.errno();
      close();
      if (failure === system.os.errno.EAGAIN) return undefined;
      const [code] = Object.entries(system.os.errno).find(([, number]) => number === failure) ?? ["EIO"];
      throw Object.assign(new Error(`${code}: cannot lock '${path}'`), { code });
    },
  };
}

/** Returns koffi. It is not imported, so that only Node resolves it and no bundler includes it. */
function requireKoffi(): Koffi {
  const { createRequire } = process.getBuiltinModule("node:module");
  try {
    return createRequire(shipped("package.json"))("koffi");
  } catch (cause) {
    const missing = (cause as { code?: unknown }).code === "MODULE_NOT_FOUND";
    const reason = missing ? "it is not installed" : `it does not start: ${(cause as Error).message}`;
    throw new NoLoader(`Node needs the package koffi to load libraries and to lock files, and ${reason}`, {
      cause,
    });
  }
}

/** Limits concurrent calls; the others wait in order of arrival. */
class Turns {
  readonly #waiting: (() => void)[] = [];

  constructor(private free: number) {}

  async take<T>(call: () => Promise<T>): Promise<T> {
    if (this.free > 0) this.free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await call();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.free++;
    }
  }
}

function tryOrClose<T>(work: () => T, close: () => void): T {
  try {
    return work();
  } catch (error) {
    close();
    throw error;
  }
}

const nodeRuntime = createNodeRuntime(requireKoffi);
