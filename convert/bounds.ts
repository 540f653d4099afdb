/** Bounds of what config.json may say, like those of the GGUF reader. */
export const MAX = {
  layers: 1024,
  context: 16_777_216,
  hidden: 131_072,
  feedForward: 1_048_576,
  heads: 1024,
  headDim: 4096,
  vocabulary: 1_048_576,
  base: 1e15,
  factor: 65_536,
} as const;
