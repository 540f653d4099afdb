import type { Choice } from "./choices.ts";
import type { FreeSpace } from "./disk.ts";
import type { Needs } from "./header.ts";
import type { ModelList } from "./model_list.ts";
import type { Offer } from "./offer.ts";
import type { Pace } from "./patience.ts";
import type { Receipt } from "./store.ts";

/** Where models come from if nobody names another hub. */
export const DEFAULT_ENDPOINT = "https://huggingface.co";
export const DEFAULT_CONNECTIONS = 4;
export const MAX_CONNECTIONS = 32;

/** What happens while a model is pulled. Counts are of bytes, and `done` never becomes less. */
export type PullEvent =
  | {
    readonly kind: "begin";
    readonly name: string;
    readonly source: string;
    readonly files: readonly string[];
    readonly bytes: number;
    /** Of these, here from before. */
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
  /** Shown to the hub, and to nobody else. */
  readonly token?: string;
  /** Names beside those of the shipped list. */
  readonly list?: ModelList;
  /** What the model is called here; by default as its file. */
  readonly as?: string;
  /** Of the file, in hex, where the hub does not say it. */
  readonly sha256?: string;
  /** Also what does not fit this machine, or what compy cannot run. */
  readonly anyway?: boolean;
  readonly connections?: number;
  /** Asked where the source leaves a choice open. */
  readonly choose?: (offer: Offer) => Promise<Choice>;
  readonly onEvent?: (event: PullEvent) => void;
  /** Stops, with its reason; what was downloaded is kept. */
  readonly signal?: AbortSignal;
  readonly pace?: Pace & { readonly stallMs?: number };
  /** Bytes of memory that a model may take; by default what is free here. */
  readonly freeMemory?: number;
  /** Says how many bytes may be written to a folder. */
  readonly freeSpace?: FreeSpace;
}

/** A model that is there now. */
export interface PulledModel {
  readonly name: string;
  /** Of its first file. */
  readonly path: string;
  readonly bytes: number;
  readonly receipt: Receipt;
  /** Whether it was there before, in this version. */
  readonly already: boolean;
  /** Bytes of files that came over the network, also those that were of no use. */
  readonly fetched: number;
}
