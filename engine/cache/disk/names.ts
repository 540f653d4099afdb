import type { PartKind, PromptNames } from "./types.ts";

/** Everything that determines the bytes of a KV cache, except the tokens. */
export interface CacheIdentity {
  /** Fingerprint of the model's weights. */
  readonly weights: string;
  /** Digest of the plan: its ops, rotary angles, and cache and state shapes. */
  readonly plan: string;
  /** Digest of the kernels, and the instruction set, whose vector width changes the order of sums. */
  readonly kernels: string;
  readonly isa: string;
  /** Digest of the vision tower, which determines the rows of images; undefined without a tower. */
  readonly tower?: string;
}

/** node:crypto is not imported: browsers load this file too and lack the module. */
const nodeCrypto = () => process.getBuiltinModule("node:crypto");

/** Version of the stored contents. Increase it when the contents under a name change. */
const VERSION = 1;

/**
 * Names chains of blocks by hashes. A block's link hashes the previous link and its tokens. The first link
 * hashes identity and prefix key with the folder's secret. So names reveal nothing about texts without the secret. Names
 * of prompts with images also depend on the vision tower. The prefix keys of these prompts contain the images' digests.
 */
export function createNames(identity: CacheIdentity, secret: Uint8Array): PromptNames {
  const { weights, plan, kernels, isa, tower } = identity;
  const { createHash, createHmac } = nodeCrypto();
  const id = sha256(JSON.stringify([VERSION, weights, plan, kernels, isa])).slice(0, 16);
  return {
    id,
    root: (key, hasImages) => {
      const named = hasImages ? [id, key, tower] : [id, key];
      return createHmac("sha256", secret).update(JSON.stringify(named)).digest();
    },
    link: (before, tokens) => {
      const bytes = new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
      return createHash("sha256").update(before).update(bytes).digest();
    },
    name: (link: Uint8Array, kind: PartKind) =>
      createHash("sha256").update(link).update(String(kind)).digest("hex"),
  };
}

/** Returns the SHA-256 digest in hex. */
export function sha256(data: string | Uint8Array): string {
  return nodeCrypto().createHash("sha256").update(data).digest("hex");
}
