/** Files whose keys or tensors are spoilt, for tests of what is refused. */
import { MetadataMap } from "./metadata.ts";
import type { GgufFile, MetadataValue } from "./types.ts";

export interface Changes {
  /** A key without the architecture, and its other value; undefined takes it out. */
  readonly key?: readonly [name: string, value: MetadataValue | undefined];
  /** A tensor, and its other shape; undefined takes it out. */
  readonly tensor?: readonly [name: string, shape: readonly number[] | undefined];
}

/** The file with a key of another value, or a tensor of another shape. A tensor that it does not have is added. */
export function changed(file: GgufFile, { key, tensor }: Changes): GgufFile {
  const tensors = new Map(file.tensors);
  const entries = new Map(file.metadata.entries);
  if (key) {
    const name = `${file.metadata.getString("general.architecture")}.${key[0]}`;
    if (key[1] === undefined) entries.delete(name);
    else entries.set(name, key[1]);
  }
  if (tensor) {
    const [name, shape] = tensor;
    const [first] = tensors.values();
    if (shape) tensors.set(name, { ...tensors.get(name) ?? { ...first, name }, shape });
    else tensors.delete(name);
  }
  return { ...file, tensors, metadata: new MetadataMap(entries) };
}
