import type { Words } from "../engine/api/errors.ts";
import type { GpuReport, MachineLimits } from "../engine/load/machine.ts";
import type { BackendName, KvType } from "../engine/mod.ts";

/**
 * `ok`; `slow`: compy runs, but slower or with less memory than possible; `wrong`: the wanted setup cannot
 * run.
 */
export type Status = "ok" | "slow" | "wrong";

/** The result of one check. */
export interface Finding {
  readonly status: Status;
  /** The state that the check found, in one or two sentences. */
  readonly found: string;
  /** Advice for a problem; undefined if there is none. */
  readonly advice?: string;
  /** The found state as figures for programs: bytes, seconds and counts. */
  readonly figures?: Readonly<Record<string, number | string | boolean | readonly string[]>>;
}

/** The wanted server settings. */
export interface Wanted {
  /** Paths of the models to serve. */
  readonly models: readonly string[];
  /** A folder of models that requests load. */
  readonly folder?: string;
  readonly host: string;
  readonly port: number;
  /** Path of a Unix socket, instead of host and port. */
  readonly unix?: string;
  /** Whether requests need a key. */
  readonly hasKeys: boolean;
  /** The folder of files and batches; undefined if none. */
  readonly data?: string;
  /** Backend to check; by default the native kernels, or WebAssembly if they are missing. */
  readonly backend?: BackendName;
  readonly threads?: number;
  readonly contextLength?: number;
  /** Number of requests that run together; by default a number that shrinks to fit free memory. */
  readonly parallel?: number;
  readonly kvBytes?: number;
  readonly kvType?: KvType;
  /** Words for settings in advice; by default library options. */
  readonly words?: Words;
}

/** An opened native library. */
export interface OpenLibrary {
  readonly path: string;
  /** Version of the library's ABI. */
  readonly version: number;
}

/** Memory in bytes. */
export interface Memory {
  readonly total: number;
  /** Memory that programs can still get, file cache included. */
  readonly available: number;
  /** Memory limit of this process's control group; Infinity if none. */
  readonly limit: number;
  /** Number of bytes of this process that are swapped out. */
  readonly swapped: number;
}

/** Memory needs of a model, in bytes. */
export interface ModelNeeds {
  readonly name: string;
  readonly bytes: number;
  /** Weight bytes that one token reads; undefined for an encoder, which reads whole texts. */
  readonly tokenBytes?: number;
}

/** The program that answers at an address. */
export type Occupant = "nobody" | "compy" | "another program";

/** The machine as the checks see it. Tests replace it. */
export interface World {
  readonly os: string;
  readonly arch: string;
  readonly denoVersion: string;
  /** Threads that can run at once, limited by affinity and by whole cores of a control group's quota. */
  readonly threads: number;
  /** Returns a small text file of the system; undefined if it is missing or unreadable. */
  readText(path: string): Promise<string | undefined>;
  /** Returns the mean number of runnable programs in the last minute; undefined if unknown. */
  load(): number | undefined;
  memory(): Memory | undefined;
  permitted(permission: Deno.PermissionDescriptor): boolean;
  /** Opens the kernels. Throws LibraryNotFound. */
  openKernels(): OpenLibrary;
  openGrammars(): OpenLibrary;
  /** Returns the available instruction sets, best first. */
  instructionSets(backend?: BackendName): Promise<readonly string[]>;
  /** Measures the machine's limits. Takes about a second and 512 MB. */
  measureLimits(threads: number, backend?: BackendName): Promise<MachineLimits>;
  /** Returns a report on the GPU; undefined without an adapter. Throws GpuError if the adapter cannot be opened. */
  examineGpu(): Promise<GpuReport | undefined>;
  /**
   * Returns a model's memory needs. Throws for a broken or unsupported file, and MemoryError if it does not
   * fit.
   */
  measureModel(path: string, wanted: Wanted): Promise<ModelNeeds>;
  /** Returns the paths of the models in a folder. */
  modelsIn(folder: string): readonly string[];
  /** Returns the program that answers at the address. Throws if no program can listen there. */
  occupantOf(address: Pick<Wanted, "host" | "port" | "unix">): Promise<Occupant>;
  /** Creates the folder if needed and writes a file into it. Throws if that fails. */
  tryWriting(folder: string): Promise<void>;
  /** Returns whether a server holds the folder's lock. */
  isLocked(folder: string): Promise<boolean>;
  /** Returns the free bytes on the folder's disk; undefined if unknown. */
  freeSpace(folder: string): Promise<number | undefined>;
}
