import { packedBytes } from "../../backend/choose.ts";
import { EngineError, worded, type Words } from "../../api/errors.ts";
import { GgufError } from "../../gguf/errors.ts";
import { activeBytes, planCost } from "../../plan/cost.ts";
import { canDraft, mainOps } from "../../plan/ops/registry.ts";
import type { Plan } from "../../plan/plan.ts";
import type { ModelDescription } from "../describe.ts";
import { measureDraft } from "../load_draft.ts";
import type { MemoryNeeds } from "../memory_error.ts";
import type { LoadOptions } from "../options.ts";
import { engineSize, usualContext } from "../size.ts";

/** A drafter's file, and the resources that it needs in addition to the model's. */
export interface DrafterReport {
  readonly path: string;
  readonly architecture: string;
  readonly memory: MemoryNeeds;
  /** Bytes of weights read per drafted token. */
  readonly tokenWeights: number;
  /** Whether the drafter's layers are part of the model's plan. Otherwise it is a smaller model. */
  readonly joined: boolean;
}

type DrafterOptions = Pick<LoadOptions, "draft" | "contextLength" | "parallel" | "kvType"> & {
  readonly words?: Words;
};

/** Describes the drafter that the options name, or returns the reason why it cannot draft for the model. */
export async function describeDrafter(
  described: ModelDescription,
  { draft, words, ...options }: DrafterOptions,
): Promise<DrafterReport | { readonly refusal: string } | undefined> {
  if (draft === undefined) return undefined;
  try {
    const plan = await described.plan();
    const contextLength = usualContext(plan, options.contextLength);
    const size = { ...options, contextLength };
    return described.drafter
      ? await reportJoined(described, draft, size)
      : await measureDraft(draft, described, size).then(({ memory, architecture, tokenBytes }) => (
        { path: draft, architecture, memory, tokenWeights: tokenBytes, joined: false }
      ));
  } catch (error) {
    if (error instanceof GgufError || error instanceof EngineError) return { refusal: worded(error, words) };
    throw error;
  }
}

async function reportJoined(
  described: ModelDescription,
  path: string,
  options: { readonly contextLength: number; readonly parallel?: number },
): Promise<DrafterReport> {
  const plans = [await described.plan(), await described.plainPlan()];
  const sizes = plans.map((plan) => engineSize(plan, { ...options, drafts: true }).memory);
  const bytes = await Promise.all(plans.map((plan) => packedBytes(plan, {})));
  const weights = bytes.map((bytes) => bytes.reduce((sum, n) => sum + n, 0));
  const added = (name: keyof typeof sizes[0]) => sizes[0][name] - sizes[1][name];
  return {
    path,
    architecture: described.drafter!.description.hparams.architecture,
    memory: {
      weights: weights[0] - weights[1],
      activations: added("activations"),
      states: added("states"),
      kv: added("kv"),
    },
    tokenWeights: draftBytes(plans[0], bytes[0])!,
    joined: true,
  };
}

/** Returns the bytes of weights that the plan's draft layer reads per token; undefined without a draft layer. */
function draftBytes(plan: Plan, bytes: readonly number[]): number | undefined {
  if (!canDraft(plan)) return undefined;
  // A draft begins with the op `recall`. Without this op, the cost model counts the other ops as ops of a step.
  const ops = plan.ops.slice(mainOps(plan).length + 1);
  return activeBytes(planCost({ ...plan, ops }, (tensor) => bytes[plan.tensors.indexOf(tensor)]));
}
