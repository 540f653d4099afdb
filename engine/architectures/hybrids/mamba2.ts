import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { readMambaHparams } from "../../gguf/hparams/mamba_hparams.ts";
import { embed } from "../../plan/ops/embed.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import type { Architecture } from "../architecture.ts";
import { handOut } from "../parts/hidden_rows.ts";
import { mixMamba2 } from "../parts/mamba_hybrid.ts";

/**
 * Mamba2 and Mamba Codestral: Mamba2 layers only. Sources: "Transformers are SSMs" (arXiv 2405.21060); Hugging
 * Face transformers, models/mamba2; llama.cpp, src/models/mamba2.cpp.
 */
export const MAMBA2: Architecture = {
  allows: { layersDiffer: true, noAttention: true },
  build(b, h) {
    const mamba = readMambaHparams(ArchitectureKeys.of(b.file.metadata));
    const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
    for (let layer = 0; layer < h.blockCount; layer++) {
      const name = (tensor: string) => `blk.${layer}.${tensor}`;
      handOut(b, x, layer);
      mixMamba2(b, rmsNorm(b, x, name("attn_norm"), h.epsilon), mamba, h.epsilon, name, { addTo: x });
    }
    handOut(b, x, h.blockCount);
    return x;
  },
};
