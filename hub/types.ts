import type { Choice } from "./choices.ts";
import type { FreeSpace } from "./disk.ts";
import type { Needs } from "./header.ts";
import type { ModelList } from "./model_list.ts";
import type { Offer } from "./offer.ts";
import type { Pace } from "./retry_policy.ts";
import type { Receipt } from "./store.ts";

/** The default hub. */
export const DEFAULT_ENDPOINT = "https://huggingface.co";
export const DEFAULT_CONNECTIONS = 4;
export const MAX_CONNECTIONS = 32;

/** Events of a pull. Counts are in bytes, and `done` never decreases. */
export type PullEvent =
  | {
    readonly kind: "begin";
    readonly name: string;
    readonly source: string;
    readonly files: readonly string[];
    readonly bytes: number;
    /** Hash of the first piece, if the hub states it. */
    readonly sha256: string | undefined;
    /** Bytes of these that were already here. */
    readonly kept: number;
  }
  | {
    readonly kind: "needs";
    readonly needs: Needs;
    readonly free: number | undefined;
    readonly fits: boolean;
  }
  | { readonly kind: "download" | "check"; readonly done: number; readonly total: number }
  | { readonly kind: "note"; readonly message: string };

export interface PullOptions {
  /** `hf:OWNER/REPO[@REVISION][:FILE or quantisation]`, an https address, or a name in the list. */
  readonly source: string;
  /** The folder of models. */
  readonly models: string;
  /** Another hub, or a mirror of the default one. */
  readonly endpoint?: string;
  /** Sent only to the hub. */
  readonly token?: string;
  /** Names in addition to the shipped list. */
  readonly list?: ModelList;
  /** Local name of the model; by default its file's. */
  readonly as?: string;
  /** Hex hash of the file, if the hub has none. */
  readonly sha256?: string;
  /** Pull even a model that does not fit this machine or that compy cannot run. */
  readonly anyway?: boolean;
  readonly connections?: number;
  /** Called where the source leaves a choice open. */
  readonly choose?: (offer: Offer) => Promise<Choice>;
  readonly onEvent?: (event: PullEvent) => void;
  /** Stops the pull with its reason. Downloaded bytes are kept. */
  readonly signal?: AbortSignal;
  readonly pace?: Pace & { readonly stallMs?: number };
  /** Bytes of memory that a model may take; by default the free memory. */
  readonly freeMemory?: number;
  /** Returns how many bytes may be written to a folder. */
  readonly freeSpace?: FreeSpace;
}

/** The pulled model. */
export interface PulledModel {
  readonly name: string;
  /** Path of its first file. */
  readonly path: string;
  readonly bytes: number;
  readonly receipt: Receipt;
  /** Whether this version was already here. */
  readonly already: boolean;
  /** File bytes received over the network, useless ones included. */
  readonly fetched: number;
}
