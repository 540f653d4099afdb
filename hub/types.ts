import type { Choice } from "./choices.ts";
import type { FreeSpace } from "./disk.ts";
import type { Needs } from "./header.ts";
import type { ModelList } from "./model_list.ts";
import type { Offer } from "./offer.ts";
import type { Pace } from "./retry_policy.ts";
import type { Receipt } from "./store.ts";

/** Address of the default hub. */
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
    /** SHA-256 of the first piece, if the hub states it. */
    readonly sha256: string | undefined;
    /** Number of the bytes that were already here. */
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
  /** The model's source: `hf:OWNER/REPO[@REVISION][:FILE or quantisation]`, an https address, or a name in the list. */
  readonly source: string;
  /** Path of the folder of models. */
  readonly models: string;
  /** Address of another hub, or of a mirror of the default one. */
  readonly endpoint?: string;
  /** Access token, sent only to the hub. */
  readonly token?: string;
  /** Short names of models in addition to the shipped list. */
  readonly list?: ModelList;
  /** Local name for the model; by default its file's name. */
  readonly as?: string;
  /** SHA-256 of the file in hex, if the hub has none. */
  readonly sha256?: string;
  /** Whether to pull a model even if it does not fit this machine or compy cannot run it. */
  readonly anyway?: boolean;
  readonly connections?: number;
  /** Chooses a model if the source has several. */
  readonly choose?: (offer: Offer) => Promise<Choice>;
  readonly onEvent?: (event: PullEvent) => void;
  /** Stops the pull when aborted, with its reason. Downloaded bytes are kept. */
  readonly signal?: AbortSignal;
  readonly pace?: Pace & { readonly stallMs?: number };
  /** Bytes of memory that a model may take; by default the free memory. */
  readonly freeMemory?: number;
  /** Returns the number of bytes that may be written to a folder. */
  readonly freeSpace?: FreeSpace;
}

/** The pulled model. */
export interface PulledModel {
  readonly name: string;
  /** Path of the model's first file. */
  readonly path: string;
  readonly bytes: number;
  readonly receipt: Receipt;
  /** Whether this version of the model was already here. */
  readonly already: boolean;
  /** Number of file bytes received over the network, including useless ones. */
  readonly fetched: number;
}
