/** Changes a key or tensor of a model file, for tests of refusals. */
import { MetadataMap } from "./metadata.ts";
import type { GgufFile, MetadataValue } from "./types.ts";

export interface Changes {
  /** A metadata key without the architecture, and its new value; undefined removes the key. */
  readonly key?: readonly [name: string, value: MetadataValue | undefined];
  /** A tensor's name and its new shape; undefined removes the tensor. */
  readonly tensor?: readonly [name: string, shape: readonly number[] | undefined];
}

/** Returns the file with a key or tensor changed. A tensor that the file lacks is added. */
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
