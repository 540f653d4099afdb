import { WordedError, type Wording } from "../api/errors.ts";

/** The memory that an engine may take, in bytes. */
export interface MemoryBounds {
  readonly free: number;
  /** Bytes of the packed weights. */
  readonly weights: number;
  /** Words for the memory bound, if it is not this machine's free memory. */
  readonly room?: MemoryRoom;
}

/** Wording of messages about a bound that is not the machine's memory. */
export interface MemoryRoom {
  /** Text before the bytes in a message: `… memory has room for`. */
  readonly allows: Wording;
  /** Advice on how to get more memory: `use …`. */
  readonly advice: Wording;
}

/** Thrown if settings need more memory than is free. The message lists the needs, and settings that fit. */
export class MemoryError extends WordedError {
  override name = "MemoryError";

  /** `needed`: bytes that the whole model needs, if they exceed the free memory. */
  constructor(message: string | Wording, readonly needed?: number) {
    super(message);
  }
}

/** The bytes that a model needs with given settings. */
export interface MemoryNeeds {
  readonly weights: number;
  readonly activations: number;
  /** Bytes of recurrent state; 0 for models without it. */
  readonly states: number;
  readonly kv: number;
  /** Contents of the KV cache in words; undefined for models without one. */
  readonly kvNote?: Wording;
}

export function totalOf({ weights, activations, states, kv }: Omit<MemoryNeeds, "kvNote">): number {
  return weights + activations + states + kv;
}

/** Returns the error for a model that does not fit: one line per sum, then settings that fit. */
export function shortage(
  needs: MemoryNeeds,
  { free, room }: Pick<MemoryBounds, "free" | "room">,
  fits: Wording,
): MemoryError {
  const row = (name: string, bytes: number) => `\n  ${name.padEnd(17)}${megabytes(bytes).padStart(16)}`;
  const available = room ? [...room.allows, ` ${megabytes(free)}`] : [`${megabytes(free)} are free for it`];
  const message = [
    `The model needs ${megabytes(totalOf(needs))} of memory with these settings, and `,
    ...available,
    ":",
    row("weights", needs.weights),
    row("activations", needs.activations),
    ...(needs.states > 0 ? [row("recurrent states", needs.states)] : []),
    ...(needs.kvNote === undefined ? [] : [row("KV cache", needs.kv), "  (", ...needs.kvNote, ")"]),
    ...(fits.length > 0 ? ["\n  What fits: ", ...either(fits)] : [
      "\n  No setting fits: ",
      ...(room ? room.advice : ["free some memory"]),
      ", or use a smaller model or one in fewer bits",
    ]),
  ];
  return new MemoryError(message, totalOf(needs));
}

/** Returns the alternatives joined by ", or ". */
export function either(alternatives: Wording): Wording {
  return alternatives.flatMap((one, i) => i === 0 ? [one] : [", or ", one]);
}

/** Returns the bytes as megabytes, for example `1,234.5 MB`. */
export function megabytes(bytes: number): string {
  const digits = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
  return `${(bytes / 1e6).toLocaleString("en-US", digits)} MB`;
}

/**
 * Returns the largest whole number from 1 to `most` that fits; 0 if none does. If a number fits, all smaller ones must
 * fit.
 */
export function largest(most: number, fits: (n: number) => boolean): number {
  let [low, high] = [0, most];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}
