/** A crate's library. All its exports have one signature (rust-kernels/src/ffi.rs, rust-grammar/src/ffi.rs). */
import { type Candidate, candidates, LibraryNotFound, namedLibrary, type Place } from "./find.ts";
import type { LibraryName } from "./names.ts";
import { type Call, type Export, NoLoader, type Runtime, thisRuntime } from "./runtime.ts";

/** The description of a library. */
export interface NativeOptions<Symbols> {
  readonly library: LibraryName;
  /** Places to search; by default those of candidates(). */
  readonly places?: readonly Candidate[];
  readonly symbols: Symbols;
  /** The export that returns the library's ABI version, and the expected version. */
  readonly version: { readonly name: keyof Symbols; readonly wanted: number };
  /** The class of errors that failed calls throw. */
  readonly error: new (message: string) => Error;
}

const NOTHING = new Uint8Array(0);
/** Buffer size for answers of unknown length, and for messages. */
const ANSWER_BYTES = 4096;

/**
 * An open library, from the first place with these symbols and this version. A library is never closed, because its
 * own threads may still run. The constructor throws LibraryNotFound.
 */
export class NativeLibrary<Symbols extends Record<string, Export>> {
  /** Path of the library file that was opened. */
  readonly path: string;
  /** ABI version of the library's exports. */
  readonly version: number;
  /** Whether each call of callAsync starts at once. If calls may be queued, no call may wait for another call. */
  readonly startsCallsAtOnce: boolean;
  readonly #symbols: Readonly<Record<keyof Symbols, Call>>;
  readonly #error: new (message: string) => Error;

  constructor({ library, places, symbols, version, error }: NativeOptions<Symbols>) {
    this.#error = error;
    this.version = version.wanted;
    const runtime = thisRuntime();
    if (runtime === undefined) throw new LibraryNotFound(library, []);
    this.startsCallsAtOnce = runtime.startsCallsAtOnce;
    const looked: Place[] = [];
    for (const place of places ?? candidates(library)) {
      const opened = open(runtime, place, symbols, version);
      if ("problem" in opened) {
        looked.push(opened);
        continue;
      }
      this.path = place.path;
      this.#symbols = opened.symbols;
      return;
    }
    throw new LibraryNotFound(library, looked, places === undefined && namedLibrary() !== undefined);
  }

  /** Calls an export that returns at once. Returns the number of bytes written; throws the reported error. */
  call(
    name: keyof Symbols,
    handle: bigint,
    input: Uint8Array<ArrayBuffer> = NOTHING,
    output: Uint8Array<ArrayBuffer> = new Uint8Array(ANSWER_BYTES),
  ): Uint8Array<ArrayBuffer> {
    const written = this.#symbols[name](handle, input, BigInt(input.length), output, BigInt(output.length));
    return this.#answer(written as number, output);
  }

  /**
   * Calls an export on another thread. `input` and `output` are lent until the promise settles: they must not be
   * changed, transferred or resized.
   */
  async callAsync(
    name: keyof Symbols,
    handle: bigint,
    input: Uint8Array<ArrayBuffer>,
    output: Uint8Array<ArrayBuffer> = new Uint8Array(ANSWER_BYTES),
  ): Promise<Uint8Array<ArrayBuffer>> {
    const written = this.#symbols[name](handle, input, BigInt(input.length), output, BigInt(output.length));
    return this.#answer(await written, output);
  }

  #answer(written: number, output: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    if (written >= 0) return output.subarray(0, written);
    throw new this.#error(new TextDecoder().decode(output.subarray(0, -1 - written)));
  }
}

/** Opens the library at a place if it exists, may be loaded and has the wanted version. */
function open<Symbols extends Record<string, Export>>(
  runtime: Runtime,
  place: Candidate,
  symbols: Symbols,
  version: NativeOptions<Symbols>["version"],
): { readonly symbols: Readonly<Record<keyof Symbols, Call>> } | Place {
  const { path } = place;
  if ("problem" in place) return place;
  try {
    process.getBuiltinModule("node:fs").statSync(path);
    const library = runtime.openLibrary(path, symbols);
    const answer = new Uint8Array(4);
    library.symbols[version.name](0n, NOTHING, 0n, answer, 4n);
    const found = new DataView(answer.buffer).getUint32(0, true);
    if (found === version.wanted) return library;
    library.close();
    return {
      path,
      problem: "other version",
      reason: `its ABI version must be ${version.wanted} (got ${found})`,
    };
  } catch (error) {
    return placeOf(path, error);
  }
}

function placeOf(path: string, error: unknown): Place {
  const { name, code, message } = error as Error & { code?: unknown };
  if (error instanceof NoLoader) return { path, problem: "no loader", reason: message };
  if (code === "ENOENT") return { path, problem: "missing", reason: "not there" };
  if (name === "NotCapable") return { path, problem: "not permitted", reason: "FFI is not permitted there" };
  if (/too many open files/i.test(message)) {
    return { path, problem: "no descriptors", reason: "too many files are open" };
  }
  if (/cannot allocate memory|failed to map segment/i.test(message)) {
    return { path, problem: "no memory", reason: "there is no memory or address space left for it" };
  }
  return { path, problem: "not loadable", reason: message };
}
