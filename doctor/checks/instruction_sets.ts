import type { Finding, Wanted, World } from "../types.ts";

/** Advice for instruction sets without integer dot products in vectors. */
const SLOW: Readonly<Record<string, string>> = {
  scalar:
    "the kernels want AVX2 and FMA on x64; a virtual machine may hide them: give it the host's CPU model",
  neon:
    "CPUs with dot products (dotprod: from the Cortex-A76 on, so a Raspberry Pi 5) do four times as many operations an instruction",
};

/** Checks the CPU's instruction sets, as the kernels detect them, and the one that they choose. */
export async function checkInstructionSets(
  world: Pick<World, "instructionSets">,
  { backend }: Pick<Wanted, "backend">,
): Promise<Finding> {
  const sets = await world.instructionSets(backend);
  const [best] = sets;
  const found = `${best} is chosen; this CPU can run ${sets.join(", ")}`;
  const figures = { chosen: best, available: sets };
  const advice = SLOW[best];
  return advice === undefined ? { status: "ok", found, figures } : { status: "slow", found, advice, figures };
}
