/** Number of a file's first bytes that `notGguf`, `notSafetensors` and `notText` need. */
export const KIND_BYTES = 512;

type Kinds = readonly (readonly [first: RegExp | string, what: string])[];

/** Files that are often stored in place of any other file. Patterns match the first bytes, one character per byte. */
const PAGES: Kinds = [
  [
    "version https://git-lfs.github.com/spec/",
    'this is a Git LFS pointer, because Git did not download the file: run "git lfs pull"',
  ],
  [
    /^(\xef\xbb\xbf)?\s*(<!--.{0,200}?-->\s*)?<(!doctype html|html|head)\b/is,
    "this is an HTML page, saved instead of the file: use the address of the file itself " +
    '(Hugging Face\'s have "/resolve/" instead of "/blob/")',
  ],
  [/^(\xef\xbb\xbf)?\s*<\?xml\b/i, "this is an XML text, such as a server's error: download the file again"],
];

/** Files that are often stored in place of weights. */
const WEIGHTS: Kinds = [
  ...PAGES,
  ["GGUF", "this is a GGUF file"],
  ["PK\x03\x04", "this is a ZIP archive, such as PyTorch's weights, which compy does not read"],
  ["\x1f\x8b", "this is a file compressed with gzip: unpack it"],
  [/^\s*\{\s*"/, "this is a JSON text, such as a server's error: download the file again"],
];
const SAFETENSORS: Kinds[number] = [
  /^[^]{4}\0{4}\{/,
  "this is a safetensors file: convert the checkpoint that it belongs to",
];

/** Returns what a file that should be GGUF is, and what to do; undefined for unknown first bytes. */
export const notGguf = (head: Uint8Array): string | undefined => find([...WEIGHTS, SAFETENSORS], head);

/** Like `notGguf`, for a file that should be safetensors. */
export const notSafetensors = (head: Uint8Array): string | undefined => find(WEIGHTS, head);

/** Like `notGguf`, for a file that should be text. */
export const notText = (head: Uint8Array): string | undefined => find(PAGES, head);

function find(kinds: Kinds, head: Uint8Array): string | undefined {
  const first = String.fromCharCode(...head.subarray(0, KIND_BYTES));
  const begins = (pattern: RegExp | string) =>
    typeof pattern === "string" ? first.startsWith(pattern) : pattern.test(first);
  return kinds.find(([pattern]) => begins(pattern))?.[1];
}
