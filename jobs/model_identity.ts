/**
 * Everything besides the input that a job's answers depend on: the model's name, fingerprints of its weights and chat
 * template, the backend and so on. Values are few and short; messages show the keys.
 */
export type ModelIdentity = Readonly<Record<string, string | number>>;

/** Number of characters of a fingerprint that a message shows. */
const SHOWN = 16;

/** Returns the differences between two identities in words, or undefined when they are equal. */
export function identityDifference(
  before: ModelIdentity,
  now: ModelIdentity,
  words = (key: string, one: string, other: string) => `${key} ${one} (now ${other})`,
): string | undefined {
  const differences = [...new Set([...Object.keys(before), ...Object.keys(now)])]
    .filter((key) => before[key] !== now[key])
    .map((key) => words(key, show(before[key]), show(now[key])));
  return differences.length > 0 ? differences.join(", ") : undefined;
}

function show(value: string | number | undefined): string {
  if (value === undefined) return "not recorded";
  return /^[0-9a-f]{64}$/.test(String(value)) ? `${String(value).slice(0, SHOWN)}…` : JSON.stringify(value);
}
