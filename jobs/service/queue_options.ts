import type { InputLimits } from "../check.ts";
import type { Storage } from "../journal/storage.ts";
import type { ModelIdentity } from "../model_identity.ts";
import type { Execute } from "../run/dispatch.ts";
import type { DataFolder } from "./data_folder.ts";
import type { BatchStore } from "./store.ts";

export interface QueueOptions {
  readonly store: BatchStore;
  readonly folder: DataFolder;
  /** File operations for the folder. */
  readonly storage: Storage;
  readonly execute: Execute;
  /**
   * Identity of the model, or a function that returns the identity of the named models. A batch resumes only with an
   * equal identity.
   */
  readonly settings: ModelIdentity | ((models: readonly string[]) => Promise<ModelIdentity>);
  /** Number of batches for different models that may run in parallel; default 1. */
  readonly lanes?: number;
  /**
   * Returns the name of the processor that computes. A batch may resume on another processor; the queue reports such
   * a change.
   */
  readonly processor?: () => string;
  /** Resolves when batches may start; by default they start at once. */
  readonly ready?: Promise<unknown>;
  /** Number of lines in progress. */
  readonly parallel: number;
  readonly limits: InputLimits;
  /** Milliseconds that a batch pauses after a temporary failure, such as a full disk or no free file descriptors. */
  readonly pauseMs: number;
  /** Clock in Unix seconds. */
  readonly now: () => number;
  /** Called with errors that an operator should know about. */
  readonly report: (error: unknown) => void;
}
