import type { PartKind, PromptNames } from "./types.ts";

/** What the bytes of a KV cache depend on besides the tokens. */
export interface CacheIdentity {
  /** Fingerprint of the model's weights. */
  readonly weights: string;
  /** Digest of the plan: its ops, angles, and shapes of caches and states. */
  readonly plan: string;
  /** What computes: digest of the kernels, and the instruction set, whose vectors sum in their own order. */
  readonly kernels: string;
  readonly isa: string;
}

/** Not imported: a browser, which has no such module, reads this file too. */
const nodeCrypto = () => process.getBuiltinModule("node:crypto");

/** Changes whenever what is written under a name does. */
const VERSION = 1;

/**
 * Names chains of blocks by hashes: each of its predecessor's link and its tokens, the first of the identity and the salt
 * under the folder's secret. So a name says nothing of a text to whoever has not the folder's secret.
 */
export function createNames(identity: CacheIdentity, secret: Uint8Array): PromptNames {
  const { weights, plan, kernels, isa } = identity;
  const { createHash, createHmac } = nodeCrypto();
  const id = sha256(JSON.stringify([VERSION, weights, plan, kernels, isa])).toHex().slice(0, 16);
  return {
    id,
    root: (salt) => createHmac("sha256", secret).update(JSON.stringify([id, salt])).digest(),
    link: (before, tokens) => {
      const bytes = new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
      return createHash("sha256").update(before).update(bytes).digest();
    },
    name: (link: Uint8Array, kind: PartKind) =>
      createHash("sha256").update(link).update(String(kind)).digest("hex"),
  };
}

/** SHA-256. */
export function sha256(data: string | Uint8Array): Uint8Array {
  return nodeCrypto().createHash("sha256").update(data).digest();
}
