import { FairTurns } from "../pacing/fair_turns.ts";
import { CompilersBusy } from "./types.ts";

/** Maximum compilers that run at a time. Each has a limit of CPU time, so there may be more compilers than cores. */
const AT_ONCE = Math.max(8, navigator.hardwareConcurrency);

/** Returns turns for compilers. A request waits up to `waitMs` milliseconds for its compiler. */
export function compilerTurns(waitMs = 10_000): FairTurns {
  return new FairTurns({
    atOnce: AT_ONCE,
    ofTenant: AT_ONCE / 4,
    firstAmong: 2 * AT_ONCE,
    patience: { ms: waitMs, refusal: () => new CompilersBusy() },
  });
}

/** The compilers of all models in this process. */
export const compilers = compilerTurns();
