import type { GpuReport, MachineLimits } from "../engine/machine.ts";
import type { BackendName, KvType } from "../engine/types.ts";

/** `ok`; `slow`: compy runs, with less speed or room than there could be; `wrong`: what is asked for cannot run. */
export type Status = "ok" | "slow" | "wrong";

/** What one check found. */
export interface Finding {
  readonly status: Status;
  /** What is here, in a sentence or two. */
  readonly found: string;
  /** What to do about it; absent where nothing needs doing. */
  readonly advice?: string;
  /** The same in figures, for programs; bytes, seconds, and counts in plain units. */
  readonly figures?: Readonly<Record<string, number | string | boolean | readonly string[]>>;
}

/** What compy is to do here: the settings of a server. */
export interface Wanted {
  /** Paths of models. */
  readonly models: readonly string[];
  /** A folder of models that are loaded when they are asked for. */
  readonly folder?: string;
  readonly host: string;
  readonly port: number;
  /** The path of a socket, instead of host and port. */
  readonly unix?: string;
  /** Requests want one of some keys. */
  readonly hasKeys: boolean;
  /** The folder of files and batches; undefined where none is kept. */
  readonly data?: string;
  /** Without it, the native kernels, or WebAssembly's where there are none. */
  readonly backend?: BackendName;
  readonly threads?: number;
  readonly contextLength?: number;
  /** Without it, a default that shrinks to what is free. */
  readonly parallel?: number;
  readonly kvBytes?: number;
  readonly kvType?: KvType;
}

/** A native library that is open. */
export interface OpenLibrary {
  readonly path: string;
  /** Of its exports. */
  readonly version: number;
}

/** Memory in bytes. */
export interface Memory {
  readonly total: number;
  /** What programs can still get, the file cache included. */
  readonly available: number;
  /** What this process's control group may hold; Infinity without a limit. */
  readonly limit: number;
  /** Bytes swapped out. */
  readonly swapped: number;
}

/** What a model takes, in bytes. */
export interface ModelNeeds {
  readonly name: string;
  readonly bytes: number;
  /** Of its weights, those that one token reads; undefined of an encoder, which reads whole texts. */
  readonly tokenBytes?: number;
}

/** Who answers at an address. */
export type Occupant = "nobody" | "compy" | "another program";

/** All that the checks know of the machine, so that a test can make one up. */
export interface World {
  readonly os: string;
  readonly arch: string;
  readonly denoVersion: string;
  /** Threads that this process can run at once: affinity and whole cores of a control group's quota are counted in. */
  readonly threads: number;
  /** A small text file of the system; undefined where there is none, or it may not be read. */
  readText(path: string): Promise<string | undefined>;
  /** Mean number of programs that wanted to compute in the last minute; undefined where nobody can say. */
  load(): number | undefined;
  memory(): Memory | undefined;
  permitted(permission: Deno.PermissionDescriptor): boolean;
  /** Throws LibraryNotFound. */
  openKernels(): OpenLibrary;
  openGrammars(): OpenLibrary;
  /** Best first. */
  instructionSets(backend?: BackendName): Promise<readonly string[]>;
  /** Takes about a second, and 512 MB for its time. */
  measureLimits(threads: number, backend?: BackendName): Promise<MachineLimits>;
  /** Undefined where there is no adapter. Throws GpuError where there is one that cannot be opened. */
  examineGpu(): Promise<GpuReport | undefined>;
  /** Throws for a file that is broken or not supported, and MemoryError where it does not fit. */
  measureModel(path: string, wanted: Wanted): Promise<ModelNeeds>;
  /** Paths of the models in a folder. */
  modelsIn(folder: string): readonly string[];
  /** Throws where the address cannot be had by anybody. */
  occupantOf(address: Pick<Wanted, "host" | "port" | "unix">): Promise<Occupant>;
  /** Makes the folder where it is missing, and writes a file into it. Throws where that fails. */
  tryWriting(folder: string): Promise<void>;
  /** Whether a server holds the folder's lock. */
  isLocked(folder: string): Promise<boolean>;
  /** Bytes that can still be written there; undefined where nobody can say. */
  freeSpace(folder: string): Promise<number | undefined>;
}
