/** What the engine's core knows of prompts that are kept on a disk. */

/** What a part of a sequence's cache is: a KV block of a group of layers, by the group's number, or a recurrent state. */
export type PartKind = number | "state";

/** Names what is kept: equal names have equal bytes. */
export interface PromptNames {
  /** Tells apart models, ways to compute and layouts whose bytes differ; the same on every machine. */
  readonly id: string;
  /** What chains of blocks of one salt begin with. */
  root(salt: string): Uint8Array;
  /** The link of a block, after the link of the block before it. */
  link(before: Uint8Array, tokens: Int32Array): Uint8Array;
  /** The name of what is kept at the end of a chain. */
  name(link: Uint8Array, kind: PartKind): string;
}

/** Parts of prompts by their names, on a disk. Nothing here throws for what a disk does: it is a miss, or not written. */
export interface PromptStore {
  /** Whether the part is there, as far as that is known without looking. */
  has(name: string): boolean;
  /** The part, if it is there, has so many bytes and is whole. */
  read(name: string, bytes: number): Promise<Uint8Array | undefined>;
  /** Bytes that may be given to `write` now; where it is 0 or less, others should be written first. */
  readonly room: number;
  /** Whether anything may be written at present. */
  readonly writable: boolean;
  /** Writes behind; whether the part is there at the end. `bytes` must stay as they are until then. */
  write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<boolean>;
  /** Makes parts that are there durable; whether they are. */
  sync(names: readonly string[]): Promise<boolean>;
  /** A chain's parts are used, the first of them the most: it is given up last. */
  use(names: readonly string[]): void;
  /** Calls the listener whenever there is room again, until the returned function is called. */
  onRoom(listener: () => void): () => void;
  /** Bytes on the disk. */
  readonly bytes: number;
  /** Most bytes on the disk. */
  readonly limit: number;
}

/** How an engine keeps its prompts. */
export interface PromptKeeping {
  readonly store: PromptStore;
  readonly names: PromptNames;
  /** Bytes of a KV block of each group, and of a recurrent state. */
  readonly groupBytes: readonly number[];
  readonly stateBytes: number;
  /** Write what is computed at once, and not only when it is used a second time. */
  readonly eager: boolean;
  /** Gives the store back. */
  close(): Promise<void>;
}
