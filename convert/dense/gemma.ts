import { norm } from "./gemma3.ts";
import { Fields } from "../checkpoint/json.ts";
import { convertLlama } from "./llama.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const ACTIVATION = "gelu_pytorch_tanh";

/** The tensors and keys of Gemma 1 and CodeGemma. */
export function convertGemma(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("hidden_activation", ACTIVATION, "no other activation is computed");
  config.mustBe("use_bidirectional_attention", false, "rows attend to those before them");
  // Its first files say "gelu" and mean this. Source: Gemma's configuration class.
  const meant = config.get("hidden_act") === "gelu" ? { hidden_act: ACTIVATION } : {};
  const parts = convertLlama(new Fields(config.file, { ...config.object, ...meant }), list, prefix, {
    architecture: "gemma",
    interleavedRope: false,
    headNorms: false,
    activation: ACTIVATION,
    norm,
  });
  return { ...parts, tied: config.boolean("tie_word_embeddings", true) };
}
