import { GgufBuilder } from "../../../engine/gguf/testing.ts";
import type { TensorType } from "../../../engine/gguf/types.ts";
import { SynthFile } from "../file.ts";
import { describeTokens } from "../tokens.ts";

/** Returns the bytes of a seeded drafter's file with the tokens of seeded models. `write` adds its keys and tensors. */
export function drafterFile(
  architecture: string,
  { type, seed, vocabulary }: {
    readonly type: TensorType;
    readonly seed: number;
    readonly vocabulary: number;
  },
  write: (file: SynthFile, builder: GgufBuilder) => void,
): Uint8Array<ArrayBuffer> {
  const builder = new GgufBuilder();
  const sink = {
    set: builder.set.bind(builder),
    array: builder.array.bind(builder),
    tensor: (name: string, type: TensorType, shape: readonly number[], make: () => ArrayBufferView) =>
      void builder.tensor(name, type, shape, make()),
  };
  const file = new SynthFile(sink, architecture, { seed: `${architecture} ${seed}`, typeOf: () => type });
  builder.set("general.architecture", "STRING", architecture).set("general.name", "STRING", "synthetic");
  write(file, builder);
  describeTokens(file, vocabulary);
  return builder.build().bytes;
}
