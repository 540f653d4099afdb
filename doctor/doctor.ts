import { LibraryNotFound } from "../ffi/find.ts";
import { checkAddress } from "./checks/address.ts";
import { checkBandwidth } from "./checks/bandwidth.ts";
import { checkCores } from "./checks/cores.ts";
import { checkDataFolder } from "./checks/data_folder.ts";
import { checkDeno } from "./checks/deno.ts";
import { checkGpu } from "./checks/gpu.ts";
import { checkHugePages } from "./checks/huge_pages.ts";
import { checkInstructionSets } from "./checks/instruction_sets.ts";
import { checkGrammars, checkKernels } from "./checks/libraries.ts";
import { checkKeys } from "./checks/keys.ts";
import { checkLimits } from "./checks/limits.ts";
import { checkMemory } from "./checks/memory.ts";
import { checkModels } from "./checks/models.ts";
import { checkPermissions } from "./checks/permissions.ts";
import { thisMachine } from "./this_machine.ts";
import type { Finding, Wanted, World } from "./types.ts";
import { reasonOf } from "./units.ts";

export type { Finding, Status, Wanted } from "./types.ts";

type Check = (world: World, wanted: Wanted) => Finding | Promise<Finding>;

/** All checks, ordered so that earlier problems explain later ones. */
const CHECKS: Readonly<Record<string, Check>> = {
  deno: checkDeno,
  permissions: checkPermissions,
  kernels: checkKernels,
  grammars: checkGrammars,
  "instruction sets": checkInstructionSets,
  cores: checkCores,
  memory: checkMemory,
  limits: checkLimits,
  "huge pages": checkHugePages,
  models: checkModels,
  address: checkAddress,
  keys: checkKeys,
  "data folder": checkDataFolder,
  gpu: checkGpu,
  bandwidth: checkBandwidth,
};

/** A check's name and its finding. */
export interface Diagnosis extends Finding {
  readonly check: string;
}

/** Returns the finding for a check that failed. Missing libraries have their own check, which gives the advice. */
function failure(error: unknown): Pick<Finding, "found" | "advice"> {
  if (!(error instanceof LibraryNotFound)) return { found: reasonOf(error) };
  return { found: `not known without the ${error.library.what}`, advice: "see there" };
}

/**
 * Checks this machine and installation. Checks run one at a time, because some measure and would disturb each
 * other. An exception becomes that check's finding.
 */
export async function* diagnose(wanted: Wanted, world: World = thisMachine()): AsyncGenerator<Diagnosis> {
  for (const [check, run] of Object.entries(CHECKS)) {
    try {
      yield { check, ...await run(world, wanted) };
    } catch (error) {
      yield { check, status: "wrong", ...failure(error) };
    }
  }
}
