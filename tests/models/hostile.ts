/** Files with corrupted keys and tensors, and a recorder of the keys that a reader asks for. */
import { MetadataMap } from "../../engine/gguf/metadata.ts";
import type { GgufFile, Metadata, MetadataValue, TensorInfo } from "../../engine/gguf/types.ts";

export const VALUES: readonly MetadataValue[] = [
  ...[0, 1, 2, 3, 7, 16, 31, 64, 1000, 4096, 2 ** 31, 2 ** 32 - 1, 2 ** 53 - 1],
  ...[-1, 0.5, 1e-30, 1e30, NaN, Infinity, -Infinity],
  ...[2n ** 63n, -(2n ** 63n), "", "none", "yarn", true, false, [] as string[], ["x"], [true, false]],
  ...[Int32Array.of(), Int32Array.of(0), Int32Array.of(-1, 3, 5, 2), new Int32Array(70_000).fill(1)],
  ...[Float32Array.of(NaN, 0, -1, 2), new Uint32Array(3).fill(2 ** 31)],
];

/** Records the keys that a reader asks for. */
export class Watched implements Metadata {
  readonly asked = new Set<string>();
  constructor(private readonly metadata: Metadata) {}
  get entries() {
    return this.metadata.entries;
  }
  #note<T>(key: string, value: T): T {
    this.asked.add(key);
    return value;
  }
  has = (key: string) => this.#note(key, this.metadata.has(key));
  getNumber = (key: string, fallback?: number) => this.#note(key, this.metadata.getNumber(key, fallback));
  getCount = (key: string, fallback?: number) => this.#note(key, this.metadata.getCount(key, fallback));
  getString = (key: string, fallback?: string) => this.#note(key, this.metadata.getString(key, fallback));
  getBoolean = (key: string, fallback?: boolean) => this.#note(key, this.metadata.getBoolean(key, fallback));
  getStrings = (key: string) => this.#note(key, this.metadata.getStrings(key));
  getNumbers = (key: string) => this.#note(key, this.metadata.getNumbers(key));
}

/** The file with another value for a key, or without the key. */
function withKey(file: GgufFile, key: string, value: MetadataValue | undefined): GgufFile {
  const entries = new Map(file.metadata.entries);
  if (value === undefined) entries.delete(key);
  else entries.set(key, value);
  return { ...file, metadata: new MetadataMap(entries) };
}

/** Corruptions of a tensor that keep its data inside the file. */
function* spoiledTensors(file: GgufFile): Generator<[what: string, file: GgufFile]> {
  const seen = new Set<string>();
  for (const info of file.tensors.values()) {
    // The tensor of the next layer is read by the same code, so one layer suffices.
    const kind = info.name.replace(/\d+/, "");
    const first = !seen.has(kind);
    seen.add(kind);
    if (!first) continue;
    const [columns, ...rest] = info.shape;
    const shapes = [
      [columns],
      [columns, 1],
      [...info.shape, 1],
      [...info.shape, 2],
      info.shape.toReversed(),
      [
        columns,
        ...rest.map((rows) => rows + 1),
      ],
      [columns / 2, ...rest],
    ];
    const others: (TensorInfo | undefined)[] = [
      undefined,
      ...shapes.map((shape) => ({ ...info, shape })),
      ...(["F32", "F16", "Q8_0", "Q4_K", "MXFP4"] as const).map((type) => ({ ...info, type })),
    ];
    for (const other of others) {
      const tensors = new Map(file.tensors);
      if (other) tensors.set(info.name, other);
      else tensors.delete(info.name);
      yield [`${info.name} of ${other ? `${other.type} ${other.shape}` : "nothing"}`, { ...file, tensors }];
    }
  }
  const strange = { ...file.tensors.values().next().value!, name: "blk.0.strange.weight" };
  yield ["a strange tensor", { ...file, tensors: new Map([...file.tensors, [strange.name, strange]]) }];
}

function* spoiledKeys(file: GgufFile, keys: Iterable<string>): Generator<[what: string, file: GgufFile]> {
  for (const key of keys) {
    for (const value of [undefined, ...VALUES]) {
      const words = typeof value === "object"
        ? `${value.constructor.name} of ${value.length}`
        : String(value);
      yield [`${key} = ${words}`, withKey(file, key, value)];
    }
  }
}

/** Files in which one of the keys or one tensor is corrupted. */
export function* spoiled(file: GgufFile, keys: Iterable<string>) {
  yield* spoiledKeys(file, keys);
  yield* spoiledTensors(file);
}
