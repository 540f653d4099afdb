/**
 * What the answers of a job depend on besides its input: the model's name, the fingerprints of its weights and chat
 * template, the backend and so on. A few short values; their names are words for people.
 */
export type ModelIdentity = Readonly<Record<string, string | number>>;

/** Characters of a fingerprint that a message shows. */
const SHOWN = 16;

/** What of `now` differs from what `before` says, in words; undefined where nothing does. */
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
