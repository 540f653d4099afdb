/** Why a pull failed. */
export type PullErrorCode =
  /** The requested source is malformed. */
  | "PULL_SOURCE"
  /** The hub has no such repository or file, or hides it from this token. */
  | "PULL_NOT_FOUND"
  | "PULL_DENIED"
  /** The request matches more than one file. */
  | "PULL_CHOICE"
  /** There is no connection to the hub, or every connection breaks. */
  | "PULL_NETWORK"
  /** The hub's answers are inconsistent or violate the protocol. */
  | "PULL_PROTOCOL"
  /** The file keeps changing during the download. */
  | "PULL_CHANGED"
  /** The downloaded bytes do not match the hub's hash. */
  | "PULL_CHECKSUM"
  | "PULL_DISK"
  | "PULL_MEMORY"
  /** The file is not a model that compy can run. */
  | "PULL_MODEL"
  /** Another process is pulling the same model. */
  | "PULL_BUSY"
  /** The folder has another file of that name. */
  | "PULL_EXISTS"
  | "PULL_STOPPED";

/** Thrown if a pull fails. The message says what to do. */
export class PullError extends Error {
  override name = "PullError";

  constructor(readonly code: PullErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

/** A failure that may pass: a dropped connection, or an overloaded server. */
export class Transient extends Error {
  override name = "Transient";

  /** `waitMs`: milliseconds that the server asks to wait. */
  constructor(message: string, readonly waitMs?: number) {
    super(message);
  }
}

/** Thrown if the requested range is beyond the end of the file, which is shorter than announced. */
export class RangeRefused extends Transient {
  override name = "RangeRefused";
}

/** The file on the hub differs from the file that was partly downloaded. */
export class FileChanged extends Error {
  override name = "FileChanged";
}
