import { adapterChoices } from "./adapters/adapter_choice.ts";
import { EngineError, type Wording } from "../api/errors.ts";
import { saysPooling } from "../gguf/hparams/pooling.ts";
import type { GgufFile } from "../gguf/types.ts";
import { NO_VECTORS_ON_GPU } from "../loop/embeddings.ts";
import { isEncoder, type Plan } from "../plan/plan.ts";
import type { LoadOptions } from "./options.ts";

/** Throws EngineError for options that contradict each other with every model. */
export function checkTogether(
  { backend, speculate = "auto", draft, promptCache, lora = [] }: Omit<LoadOptions, "model">,
) {
  adapterChoices(lora);
  if (lora.length > 0 && backend === "webgpu") throw new EngineError("not_supported", NO_ADAPTERS_ON_GPU);
  if (lora.length > 0 && speculate === "mtp") {
    throw new EngineError("not_supported", [
      "The model's own drafting layer (",
      { speculate },
      ") does not know adapters: leave out ",
      { lora: undefined },
      ", or use ",
      { speculate: "auto" },
    ]);
  }
  if (draft !== undefined && speculate !== "auto" && speculate !== "draft") {
    throw new EngineError("invalid_request", [
      "A draft model (",
      { draft: undefined },
      ") is for ",
      { speculate: "auto" },
      " or ",
      { speculate: "draft" },
      ` (got "${speculate}")`,
    ]);
  }
  if (draft === undefined && speculate === "draft") {
    throw new EngineError("invalid_request", [
      { speculate: "draft" },
      " needs a smaller model of the same vocabulary or a drafter made for the model: name its file with ",
      { draft: undefined },
    ]);
  }
  const drafts = reasonAgainstDrafts({ speculate, draft });
  if (drafts && backend === "webgpu") throw new EngineError("not_supported", drafts);
  if (promptCache && backend === "webgpu") throw new EngineError("not_supported", NO_PROMPTS_ON_GPU);
}

/** Returns why the drafting options rule out a GPU; undefined if they do not. */
function reasonAgainstDrafts(
  { speculate = "auto", draft }: Pick<LoadOptions, "speculate" | "draft">,
): Wording | undefined {
  const asked = speculate !== "auto" && speculate !== "off";
  if (!asked && draft === undefined) return undefined;
  const option = asked ? { speculate } : { draft: undefined };
  return [option, " is not supported on a GPU: leave it out, or compute with ", { backend: "cpu" }];
}

const NO_ADAPTERS_ON_GPU: Wording = [
  "LoRA adapters (",
  { lora: undefined },
  ") are not supported on a GPU: leave them out, or compute with ",
  { backend: "cpu" },
];

export const NO_PROMPTS_ON_GPU: Wording = [
  "Prompts are kept on a disk with the CPU backend only: leave out ",
  { promptCache: undefined },
  ", or compute with ",
  { backend: "cpu" },
];

/** Returns why these options cannot run on a GPU with any model; undefined if they can. */
export function reasonAgainstGpu(
  file: GgufFile,
  plan: Plan,
  options: LoadOptions,
): Wording | undefined {
  const { pooling, promptCache, lora = [] } = options;
  if (lora.length > 0) return NO_ADAPTERS_ON_GPU;
  const vectors = pooling !== undefined || saysPooling(file) || isEncoder(plan);
  if (vectors) return NO_VECTORS_ON_GPU;
  return promptCache ? NO_PROMPTS_ON_GPU : reasonAgainstDrafts(options);
}
