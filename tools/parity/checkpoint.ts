/**
 * Writes a tiny checkpoint for trying the converter and other programs on it:
 *
 *   deno run -P=test tools/parity/checkpoint.ts (llama | qwen3 | qwen3_5) (BF16 | F16 | F32 | MXFP4 | affine) FOLDER [SEED]
 *
 * MXFP4 and affine as MLX writes them, the others as Hugging Face does. A model of the same seed has the same values in
 * all types but affine.
 */
import { type CheckpointOptions, tinyCheckpoint, writeCheckpoint } from "../../testing/checkpoints.ts";

const [model, weights, folder, seed = "1"] = Deno.args;
const layout = weights === "MXFP4" || weights === "affine" ? "mlx" : "hf";
await Deno.mkdir(folder, { recursive: true });
const options = { model, weights, layout, seed: Number(seed), shards: 2 } as CheckpointOptions;
await writeCheckpoint(folder, tinyCheckpoint(options));
