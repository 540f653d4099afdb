/** Descriptions of seeded towers, and a writer of their tensors. */
import type { TensorType } from "../../../engine/gguf/types.ts";
import type { SynthFile } from "../../../testing/synth/file.ts";
import type { SYNTH_MODELS } from "../../../testing/synth/registry.ts";

/** Sizes of a tower. They differ wherever possible, so that tests notice mixed-up sizes. */
export interface TowerSizes {
  readonly width: number;
  readonly heads: number;
  readonly feedForward: number;
  readonly layers: number;
  readonly patch: number;
  readonly merged: number;
  /** Pixels on a side of an image. */
  readonly image: number;
  /** Points on a side of the grid of Qwen's position embeddings; by default 6. */
  readonly points?: number;
}

export interface TowerFamily extends TowerSizes {
  readonly projector: string;
  /** The seeded decoder. */
  readonly decoder: keyof typeof SYNTH_MODELS;
  /** Sizes in which the decoder differs from the seeded family. */
  readonly shape?: Readonly<Record<string, number>>;
  /** Deepstack layers: their merged output is added in the decoder's first layers. */
  readonly deep?: readonly number[];
  /** Numbers of rotated pairs for time, height and width. */
  readonly sections?: readonly number[];
  readonly eps: number;
  /** Key of the number of merged patches per side, without "clip.vision.". */
  readonly mergeKey: string;
  /** Keys that only this family has. */
  readonly keys?: Readonly<Record<string, number>>;
  /** Standard deviation of each channel of images in the file, and half of the mean; by default 0.5. */
  readonly deviation?: number;
  /** Special tokens. */
  readonly marks: readonly string[];
  /** Token that the chat template writes for an image. */
  readonly mark: string;
  readonly write: (w: TowerWriter, family: TowerFamily, projection: number) => void;
}

/** Writes the tensors of a tower. */
export class TowerWriter {
  constructor(readonly file: SynthFile, private readonly type: TensorType) {}

  affine(name: string, columns: number, rows: number): void {
    this.file.matrix(name, columns, rows);
    this.file.vector(`${name}.bias`, rows, 0);
  }

  norm(name: string, length: number): void {
    this.file.vector(`${name}.weight`, length);
    this.file.vector(`${name}.bias`, length, 0);
  }

  /** Writes the patch embedding's matrix for each frame. In F16 files, a single matrix is F16. */
  patches({ patch, width }: TowerSizes, parts = ["weight"]): void {
    if (this.type === "F16" && parts.length === 1) {
      return this.file.plain("v.patch_embd", "F16", patch, patch, 3, width);
    }
    for (const part of parts) {
      const name = `v.patch_embd.${part}`;
      this.file.floats(name, [patch, patch, 3, width], (random) => 0.05 * random.normal());
    }
  }

  positions(width: number, side: number): void {
    this.file.floats("v.position_embd.weight", [width, side ** 2], (random) => random.normal());
  }

  /** Writes layers with biases: LayerNorms, attention with joined or separate matrices, and a feed-forward block. */
  layers({ width, feedForward, layers }: TowerSizes, joined: boolean): void {
    for (let layer = 0; layer < layers; layer++) {
      const name = (tensor: string) => `v.blk.${layer}.${tensor}`;
      this.norm(name("ln1"), width);
      if (joined) this.affine(name("attn_qkv"), width, 3 * width);
      else for (const part of ["attn_q", "attn_k", "attn_v"]) this.affine(name(part), width, width);
      this.affine(name("attn_out"), width, width);
      this.norm(name("ln2"), width);
      this.affine(name("ffn_up"), width, feedForward);
      this.affine(name("ffn_down"), feedForward, width);
    }
    this.norm("v.post_ln", width);
  }
}
