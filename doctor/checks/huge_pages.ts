import type { Finding, World } from "../types.ts";

const FILE = "/sys/kernel/mm/transparent_hugepage/enabled";

/** Checks transparent huge pages, which the kernels request for the weights. */
export async function checkHugePages(world: Pick<World, "readText" | "os">): Promise<Finding> {
  if (world.os !== "linux") return { status: "ok", found: `${world.os} chooses pages by itself` };
  const text = await world.readText(FILE);
  const mode = text === undefined ? undefined : /\[(\w+)\]/.exec(text)?.[1];
  if (mode === undefined) return { status: "ok", found: `nothing to be read in ${FILE}` };
  if (mode !== "never") return { status: "ok", found: `given (${mode})`, figures: { mode } };
  return {
    status: "slow",
    found: "never given",
    advice: `as root: echo madvise > ${FILE}; weights then take fewer entries of the address cache`,
    figures: { mode },
  };
}
