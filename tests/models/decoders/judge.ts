import { PARITY_FILES } from "../parity_cases.ts";
import { judge, type Judged } from "../parity_judge.ts";
import type { Architecture } from "../../../testing/synth/synth.ts";
import { isFullTier } from "../../../testing/tier.ts";

/**
 * Returns the distances of an architecture's model files in a format. The first tier takes one seed and leaves out the
 * longest prompt.
 */
export async function judgeFormat(architecture: Architecture, format: string): Promise<Judged[]> {
  const files = PARITY_FILES.filter((f) => f.options.architecture === architecture && f.format === format);
  const judged: Judged[] = [];
  for (const file of isFullTier ? files : files.slice(0, 1)) {
    judged.push(...await judge(isFullTier ? file : { ...file, prompts: file.prompts.slice(0, -1) }));
  }
  return judged;
}
