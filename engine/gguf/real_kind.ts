/** Number of a file's first bytes that `realKind` needs. */
export const KIND_BYTES = 512;

type Kinds = readonly (readonly [first: RegExp | string, what: string])[];

/** What a file of any kind may be instead, by its first bytes, each as one character. */
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

/** What a file of weights may be instead. */
const WEIGHTS: Kinds = [
  ...PAGES,
  ["GGUF", "this is a GGUF file"],
  ["PK\x03\x04", "this is a ZIP archive, such as PyTorch's weights, which are not read"],
  ["\x1f\x8b", "this is a file compressed with gzip: unpack it"],
  [/^\s*\{\s*"/, "this is a JSON text, such as a server's error: download the file again"],
];
const SAFETENSORS: Kinds[number] = [
  /^[^]{4}\0{4}\{/,
  "this is a safetensors file: convert the checkpoint that it belongs to",
];

/** Returns what a file is instead of a GGUF file, and what to do; undefined if unknown. */
export const notGguf = (head: Uint8Array): string | undefined => find([...WEIGHTS, SAFETENSORS], head);

/** Like `notGguf`, for a safetensors file. */
export const notSafetensors = (head: Uint8Array): string | undefined => find(WEIGHTS, head);

/** Like `notGguf`, for a text file. */
export const notText = (head: Uint8Array): string | undefined => find(PAGES, head);

function find(kinds: Kinds, head: Uint8Array): string | undefined {
  const first = String.fromCharCode(...head.subarray(0, KIND_BYTES));
  const begins = (pattern: RegExp | string) =>
    typeof pattern === "string" ? first.startsWith(pattern) : pattern.test(first);
  return kinds.find(([pattern]) => begins(pattern))?.[1];
}
