import { z } from "zod";
import { check, digestOf, KEY_SCOPES, type KeyRing, type NamedKey } from "../../lib/serving.ts";
import { explained, messageOf } from "../../lib/system_errors.ts";

const MAX_REQUESTS = 1_000_000;
const WEIGHTS = { min: 0.01, max: 100 };
const MAX_TOKENS = 1_000_000_000_000;
const FIELDS = [
  "name",
  "key",
  "key_sha256",
  "scope",
  "weight",
  "pull",
  "requests_at_once",
  "tokens_per_minute",
];

const entry = z.strictObject({
  name: z.string().regex(/^[\w.-]{1,64}$/, "must be 1 to 64 letters, digits and _.-"),
  // The key is checked by hand, because messages must not show keys.
  key: z.unknown().optional(),
  key_sha256: z.unknown().optional(),
  scope: z.enum(KEY_SCOPES).optional(),
  weight: z.number().min(WEIGHTS.min).max(WEIGHTS.max).optional(),
  pull: z.boolean().optional(),
  requests_at_once: z.int().min(1).max(MAX_REQUESTS).optional(),
  tokens_per_minute: z.int().min(1).max(MAX_TOKENS).optional(),
}, { error: unknownField(FIELDS) });

const content = z.strictObject({ keys: z.array(entry).min(1) }, { error: unknownField(["keys"]) });

function unknownField(allowed: readonly string[]) {
  return (issue: { readonly code?: string; readonly keys?: unknown }) => {
    if (issue.code !== "unrecognized_keys") return undefined;
    const unknown = (issue.keys as string[])[0].slice(0, 60);
    return `must have no field ${JSON.stringify(unknown)}, only ${allowed.join(", ")}`;
  };
}

/**
 * Returns the keys of a file: `{"keys": [{"name", "key" or "key_sha256", "scope"?, "weight"?, "pull"?,
 * "requests_at_once"?, "tokens_per_minute"?}]}`. Throws an Error that names the problem and never shows a key. Calls
 * `warn` if other users may read the file.
 */
export function readKeyFile(file: string, warn: (message: string) => void): NamedKey[] {
  const what = `Cannot use the key file "${file}"`;
  let text: string;
  let mode: number | null;
  try {
    text = Deno.readTextFileSync(file);
    mode = Deno.statSync(file).mode;
  } catch (error) {
    throw explained(what, error);
  }
  try {
    const { keys } = check(content, parsed(text));
    if (((mode ?? 0) & 0o077) !== 0 && keys.some(({ key }) => key !== undefined)) {
      warn(
        `Other users may read the key file "${file}"; change that with chmod 600, or keep only key_sha256 in it`,
      );
    }
    return keys.map(keyOf);
  } catch (error) {
    throw new Error(`${what}: ${(error as Error).message}`);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("it is not valid JSON"); // the parser's message would show the content
  }
}

function keyOf({ name, key, key_sha256, scope, weight, pull, ...limits }: z.output<typeof entry>): NamedKey {
  if ((key === undefined) === (key_sha256 === undefined)) {
    throw new Error(`"${name}" must have either "key" or "key_sha256"`);
  }
  const { requests_at_once, tokens_per_minute } = limits;
  const digest = key === undefined ? digestWritten(name, key_sha256) : digestOf(key);
  return {
    name,
    digest,
    scope,
    weight,
    mayPull: pull,
    requestsAtOnce: requests_at_once,
    tokensPerMinute: tokens_per_minute,
  };
}

function digestWritten(name: string, hex: unknown): Uint8Array {
  if (typeof hex === "string" && /^[0-9a-fA-F]{64}$/.test(hex)) return Uint8Array.fromHex(hex);
  throw new Error(`"key_sha256" of "${name}" must be 64 hexadecimal digits`);
}

const LOOK_MS = 2000;

/**
 * Reads the file again when it changes, and at once when the returned `reload` is called. An unusable file
 * leaves the keys unchanged. `note` is called in both cases. `stop` ends the watch.
 */
export function followKeyFile(file: string, ring: KeyRing, note: (message: string) => void) {
  let seen = stateOf(file);
  const reload = () => {
    seen = stateOf(file);
    try {
      const keys = readKeyFile(file, note);
      ring.named = keys;
      note(`Read ${keys.length} API ${keys.length === 1 ? "key" : "keys"} from "${file}"`);
    } catch (error) {
      note(`${messageOf(error as Error)}; the keys do not change`);
    }
  };
  const timer = setInterval(() => {
    if (stateOf(file) !== seen) reload();
  }, LOOK_MS);
  return { reload, stop: () => clearInterval(timer) };
}

/** Returns a text that changes if the file is edited or replaced. */
function stateOf(file: string): string {
  try {
    const { ino, size, mtime } = Deno.statSync(file);
    return `${ino} ${size} ${mtime?.getTime()}`;
  } catch {
    return "";
  }
}
