import { createHash, timingSafeEqual } from "node:crypto";
import { Allowance, type Caller, type KeyLimits } from "./caller.ts";

/** Scopes of a key: everything, or only reading `/metrics`. */
export const KEY_SCOPES = ["all", "metrics"] as const;
export type KeyScope = typeof KEY_SCOPES[number];

/** An API key with a name. */
export interface NamedKey extends KeyLimits {
  /** The key's name. It also names the owner of files and batches, so a new key with an old name finds them. */
  readonly name: string;
  /** SHA-256 of the key, 32 bytes. */
  readonly digest: Uint8Array;
  /** The key's share of the engine relative to other keys'. Default 1. */
  readonly weight?: number;
  /** Paths that the key may use. Default "all". */
  readonly scope?: KeyScope;
  /** Whether the key may download models. Default false; keys without a name may. */
  readonly mayPull?: boolean;
}

/** Pattern of keys that a Bearer header can carry. */
const KEY = /^[A-Za-z0-9._~+/-]{1,512}=*$/;
/** Name of a key that was given without one. */
const UNNAMED = "api-key";

/** The server's keys, stored as digests of equal length, so that comparing takes the same time for any key. */
export class KeyRing {
  readonly #plain: readonly Entry[];
  #entries: readonly Entry[];

  /**
   * `plain`: keys without a name. A single unnamed key owns data stored without an owner, so that a server can add keys
   * later. Several unnamed keys are distinguished by their digests. Throws for a key that no header can carry.
   */
  constructor(plain: readonly string[], named: readonly NamedKey[] = []) {
    this.#plain = plain.map((key, i) => {
      const digest = digestOf(key);
      const owner = plain.length > 1 ? digest.toString("hex").slice(0, 16) : "";
      return entryOf(plain.length > 1 ? `${UNNAMED}-${i + 1}` : UNNAMED, digest, owner, { mayPull: true });
    });
    this.#entries = this.#plain;
    this.named = named;
  }

  /** Returns true when the server needs no key. */
  get isEmpty(): boolean {
    return this.#entries.length === 0;
  }

  /**
   * Replaces all named keys. Kept names keep their running requests and used tokens. Throws for repeated keys or names.
   */
  set named(keys: readonly NamedKey[]) {
    const before = new Map(this.#entries.map((entry) => [entry.caller.name, entry]));
    const entries = [...this.#plain];
    const changed: (() => void)[] = [];
    for (const key of keys) {
      const twin = entries.find(({ digest, caller }) =>
        caller.name === key.name || timingSafeEqual(digest, key.digest)
      );
      if (twin) {
        const what = twin.caller.name === key.name ? "name" : "key";
        throw new Error(`Cannot use the API key "${key.name}": its ${what} is there already`);
      }
      const known = before.get(key.name)?.caller.allowance;
      if (known) changed.push(() => known.limits = key);
      entries.push(entryOf(key.name, key.digest, ownerOf(key.name), key, known));
    }
    // Apply changes only after all keys are checked, so that an invalid list changes nothing.
    for (const change of changed) change();
    this.#entries = entries;
  }

  /** Returns an owner's share of the engine relative to others'. */
  weightOf(owner: string): number {
    return this.#entries.find(({ caller }) => caller.owner === owner)?.caller.weight ?? 1;
  }

  /** Returns the caller that a key belongs to, or undefined for a wrong key. */
  admit(key: string): Caller | undefined {
    const given = sha256(key);
    let found: Caller | undefined;
    for (const { digest, caller } of this.#entries) if (timingSafeEqual(digest, given)) found = caller;
    return found;
  }
}

interface Entry {
  readonly digest: Uint8Array;
  readonly caller: Caller;
}

/**
 * Returns the entry of a key. Keys of different owners share no cached prompts, so that timing reveals nothing about
 * another owner's prompts.
 */
function entryOf(
  name: string,
  digest: Uint8Array,
  owner: string,
  { scope, weight = 1, mayPull = false, ...limits }:
    & KeyLimits
    & Pick<NamedKey, "scope" | "weight" | "mayPull">,
  allowance = new Allowance(`The API key "${name}"`, limits),
): Entry {
  const onlyPath = scope === "metrics" ? "/metrics" : undefined;
  return {
    digest,
    caller: { name, owner, cacheSalt: owner || undefined, weight, onlyPath, mayPull, allowance },
  };
}

/** Returns the owner id of a key's name. Files and batches store the id, so it must never change. */
function ownerOf(name: string): string {
  return sha256(`compy key ${name}`).toString("hex").slice(0, 16);
}

/** Returns the SHA-256 of a key. Throws for a key that no header can carry. */
export function digestOf(key: unknown): Buffer {
  if (typeof key === "string" && KEY.test(key)) return sha256(key);
  throw new Error(
    "Cannot use API key: must be 1 to 512 letters, digits and ._~+/- (then any =), as a Bearer header carries them",
  );
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
