import {
  type Asker,
  CompilersBusy,
  type Constraint,
  ConstraintError,
  ConstraintsMissing,
  type Grammar,
  type Grammars,
} from "../grammar/types.ts";
import { EngineError, wordingOf } from "../api/errors.ts";
import type { Sender } from "../api/request.ts";

/**
 * Compiles a constraint. Throws EngineError, after `refusal` the engine's own: then the error comes from grammars that
 * were closed meanwhile.
 */
export async function compileConstraint(
  grammars: Grammars,
  constraint: Constraint,
  asker: Asker,
  refusal: () => EngineError | undefined,
): Promise<Grammar> {
  try {
    return await grammars.compile(constraint, asker);
  } catch (error) {
    if (error instanceof CompilersBusy) throw new EngineError("queue_full", error.message);
    if (error instanceof ConstraintsMissing) throw new EngineError("not_supported", wordingOf(error));
    if (!(error instanceof ConstraintError)) throw refusal() ?? error;
    throw new EngineError("invalid_constraint", error.message);
  }
}

/** Returns the sender as the asker of work that is done before a request is queued. */
export function askerOf({ cacheSalt = "", priority }: Sender = {}): Asker {
  return { tenant: cacheSalt, batch: priority === "batch" };
}
