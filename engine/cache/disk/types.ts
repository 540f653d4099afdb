/** Interfaces between the engine's core and the prompt cache on disk. */

/** A part of a sequence's cache: a KV block, by the number of its layer group, or a recurrent state. */
export type PartKind = number | "state";

/** Names parts. Equal names mean equal bytes. */
export interface PromptNames {
  /** Identifies models, kernels and layouts whose bytes differ; equal on every machine. */
  readonly id: string;
  /** Returns the first link of all chains with this prefix key. */
  root(key: string): Uint8Array;
  /** Returns the link of a block after the previous block's link. */
  link(before: Uint8Array, tokens: Int32Array): Uint8Array;
  /** Returns the name of a part at the end of a chain. */
  name(link: Uint8Array, kind: PartKind): string;
}

/**
 * Parts of prompts on disk, by name. Disk errors never throw here: they count as a miss, or as not written.
 */
export interface PromptStore {
  /** Whether the part exists, as far as known without disk access. */
  has(name: string): boolean;
  /** Returns the part if it exists intact with this size. */
  read(name: string, bytes: number): Promise<Uint8Array | undefined>;
  /** Bytes that `write` accepts now. If 0 or less, wait for other writes to end. */
  readonly room: number;
  /** Whether the store writes at present. */
  readonly writable: boolean;
  /**
   * Writes a part in the background. Resolves when the write has ended, to whether the part exists. `bytes` must not
   * change before the promise resolves.
   */
  write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<boolean>;
  /** Makes existing parts durable. Returns whether all of them are durable. */
  sync(names: readonly string[]): Promise<boolean>;
  /** Marks a chain's parts as used. The chain's first part is evicted last. */
  use(names: readonly string[]): void;
  /** Calls the listener when there is room again, until the returned function is called. */
  onRoom(listener: () => void): () => void;
  /** Bytes on disk. */
  readonly bytes: number;
  /** Limit for the bytes on disk. */
  readonly limit: number;
}

/** An engine's prompt cache on disk. */
export interface PromptDisk {
  readonly store: PromptStore;
  readonly names: PromptNames;
  /** Bytes of a KV block of each group, and of a recurrent state. */
  readonly groupBytes: readonly number[];
  readonly stateBytes: number;
  /** Write prompts at their first use, instead of their second. */
  readonly eager: boolean;
  /** Releases the store. */
  close(): Promise<void>;
}
