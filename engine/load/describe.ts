import { adapterChoices } from "./adapters/adapter_choice.ts";
import { AdapterSet } from "./adapters/adapter_set.ts";
import { hasDraftLayer, type PlanOptions, poolingOf, readPlan } from "../architectures/registry.ts";
import { packedBytes } from "../backend/choose.ts";
import { GgufError, quote } from "../gguf/errors.ts";
import type { ModelPooling } from "../gguf/hparams/pooling.ts";
import { openGguf } from "../gguf/reader.ts";
import type { GgufFile } from "../gguf/types.ts";
import { activeBytes, planCost } from "../plan/cost.ts";
import type { ImageRows } from "../plan/extra_rows.ts";
import { type Plan, withKvType } from "../plan/plan.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import { planIn } from "./drafters/fit.ts";
import { openDrafter } from "./drafters/open.ts";
import type { OpenedDrafter } from "./drafters/types.ts";
import type { LoadOptions } from "./options.ts";

/** Reads a model file's header, and none of its weights. Throws GgufError for a broken file. */
export async function describeModel(options: LoadOptions): Promise<ModelDescription> {
  const { model, lora, draft, open } = options;
  const file = await openGguf(model, open);
  const adapters = await AdapterSet.open(adapterChoices(lora), file, open);
  const drafter = draft === undefined ? undefined : await openDrafter(draft, file, open);
  return new ModelDescription(drafter?.joined ?? file, options, adapters, drafter);
}

/** A model file's header and the facts derived from it. Each part is computed at its first use. */
export class ModelDescription {
  /** The rows of images that the plan takes. Set before the plan is first needed. */
  images?: ImageRows;
  #plan?: Promise<Plan>;
  #tokenizer?: Tokenizer;

  constructor(
    readonly file: GgufFile,
    private readonly options: LoadOptions,
    readonly adapters: AdapterSet | undefined,
    /** A drafter from another file. `file` includes its tensors. */
    readonly drafter?: OpenedDrafter,
  ) {}

  /** The model's tokenizer, also for a file that contains only a vocabulary. Throws GgufError. */
  get tokenizer(): Tokenizer {
    return this.#tokenizer ??= this.drafter?.tokenizer ?? createTokenizer(this.file.metadata);
  }

  /** How the model pools whole texts. Throws GgufError. */
  get pooling(): ModelPooling {
    return poolingOf(this.file, this.options.pooling);
  }

  /**
   * Returns the plan, with the draft layers that the options ask for: the model's own, or a drafter's. Throws GgufError
   * if compy cannot run the model.
   */
  plan(): Promise<Plan> {
    const { drafter } = this;
    if (drafter) return this.#plan ??= planIn(drafter, this.#build({ drafter: drafter.description }));
    return this.#plan ??= this.#build({ drafts: wantsDraftLayer(this.file, this.options) });
  }

  /** Returns the plan without a draft layer. Throws GgufError. */
  plainPlan(): Promise<Plan> {
    return this.#build({});
  }

  async #build(drafting: Pick<PlanOptions, "drafts" | "drafter">): Promise<Plan> {
    const { kvType, activations } = this.options;
    const { adapters, images } = this;
    const options = { ...drafting, activations, adapters, images };
    return withKvType(await readPlan(this.file, this.pooling, options), kvType);
  }

  /**
   * Returns the bytes of the weights as the backend holds them; for a GPU, about the bytes in the file. `token`: the
   * bytes that a step of one token reads to compute logits, with only the chosen experts. Throws KernelError and
   * WasmError.
   */
  async weightBytes(): Promise<{ readonly all: number; readonly token: number }> {
    const plan = await this.plan();
    const bytes = this.options.backend === "webgpu"
      ? plan.tensors.map(({ info }) => info.byteLength)
      : await packedBytes(plan, this.options);
    return {
      all: bytes.reduce((sum, bytes) => sum + bytes, 0),
      token: activeBytes(planCost(plan, (tensor) => bytes[plan.tensors.indexOf(tensor)])),
    };
  }
}

/**
 * Returns whether the model's own draft layer is loaded. Throws GgufError if the options require one and the file has
 * none.
 */
function wantsDraftLayer(
  file: GgufFile,
  { backend = "cpu", speculate = "auto", draft, lora = [] }: LoadOptions,
): boolean {
  if (draft !== undefined || backend === "webgpu") return false;
  // Adapters are made without the drafting layer, which would guess badly.
  if (speculate === "auto" && lora.length > 0) return false;
  if (speculate === "auto") return backend !== "auto" && hasDraftLayer(file);
  if (speculate !== "mtp") return false;
  if (hasDraftLayer(file)) return true;
  const key = quote(`${file.metadata.getString("general.architecture")}.nextn_predict_layers`);
  const detail = [
    "the file has no layer that drafts tokens, which ",
    { speculate },
    " asks for: use ",
    { speculate: "auto" },
  ];
  throw new GgufError("GGUF_HPARAM", detail, { field: `key ${key}` });
}
