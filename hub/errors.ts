/** Why a model was not pulled. */
export type PullErrorCode =
  /** What was asked for is written wrongly. */
  | "PULL_SOURCE"
  /** The hub has no such repository or file, or not for this token. */
  | "PULL_NOT_FOUND"
  | "PULL_DENIED"
  /** More than one file fits what was asked for. */
  | "PULL_CHOICE"
  /** No connection, or none that lasts. */
  | "PULL_NETWORK"
  /** The hub's answers contradict each other or what was agreed. */
  | "PULL_PROTOCOL"
  /** The file keeps changing while it is downloaded. */
  | "PULL_CHANGED"
  /** What came is not what the hub promised. */
  | "PULL_CHECKSUM"
  | "PULL_DISK"
  | "PULL_MEMORY"
  /** The file is no model that compy can run. */
  | "PULL_MODEL"
  /** Another process pulls the same model. */
  | "PULL_BUSY"
  /** Another file of that name is there. */
  | "PULL_EXISTS"
  | "PULL_STOPPED";

/** A model that was not pulled; the message says what to do. */
export class PullError extends Error {
  override name = "PullError";

  constructor(readonly code: PullErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

/** What may go better a moment later: a connection that was dropped, a server with too much to do. */
export class Transient extends Error {
  override name = "Transient";

  /** `waitMs`: how long the server wants to be left alone. */
  constructor(message: string, readonly waitMs?: number) {
    super(message);
  }
}

/** A range that is beyond the file's end: it is shorter than it was said to be. */
export class RangeRefused extends Transient {
  override name = "RangeRefused";
}

/** The file on the hub is no longer the one whose bytes are here. */
export class FileChanged extends Error {
  override name = "FileChanged";
}
