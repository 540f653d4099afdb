/** Interfaces between the engine's core and the prompt cache on disk. */

/** Kind of a cached part: the number of the layer group of a KV block, or "state" for a recurrent state. */
export type PartKind = number | "state";

/** Names cached parts. Equal names mean equal bytes. */
export interface PromptNames {
  /** Identifies model, kernels and layout: engines with equal ids store equal bytes, on every machine. */
  readonly id: string;
  /** Returns the first link of all chains with this prefix key. `hasImages`: whether the prompts have images. */
  root(key: string, hasImages?: boolean): Uint8Array;
  /** Returns the link of a block after the previous block's link. */
  link(before: Uint8Array, tokens: Int32Array): Uint8Array;
  /** Returns the name of a part at the end of a chain. */
  name(link: Uint8Array, kind: PartKind): string;
}

/**
 * Parts of prompts on disk, by name. Disk errors never throw here: they count as a miss, or as not written.
 */
export interface PromptStore {
  /** Returns whether the part exists, as far as known without disk access. */
  has(name: string): boolean;
  /** Returns the part if it exists intact with this size. */
  read(name: string, bytes: number): Promise<Uint8Array | undefined>;
  /** Number of bytes that `write` accepts now. If 0 or less, wait for other writes to end. */
  readonly room: number;
  /** Whether the store can write at present. */
  readonly writable: boolean;
  /**
   * Writes a part in the background. Resolves to whether the part exists, when the write has ended. `bytes` must not
   * change before the promise resolves.
   */
  write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<boolean>;
  /** Makes the named parts durable. Returns whether all of them are. */
  sync(names: readonly string[]): Promise<boolean>;
  /** Marks a chain's parts as used now. The first part of a chain is evicted last. */
  use(names: readonly string[]): void;
  /** Calls `listener` when `room` becomes positive again. The returned function ends the calls. */
  onRoom(listener: () => void): () => void;
  /** Bytes of all stored parts on disk. */
  readonly bytes: number;
  /** Maximum bytes of all stored parts on disk. */
  readonly limit: number;
}

/** An engine's prompt cache on disk. */
export interface PromptDisk {
  readonly store: PromptStore;
  readonly names: PromptNames;
  /** Bytes of a KV block of each group, and of a recurrent state. */
  readonly groupBytes: readonly number[];
  readonly stateBytes: number;
  /** Whether to write prompts at their first use, instead of their second. */
  readonly eager: boolean;
  /** Releases the prompt store. */
  close(): Promise<void>;
}
