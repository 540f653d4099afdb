import { hash } from "node:crypto";
import { checkConstraint } from "../engine/load.ts";
import { type Constraint, ConstraintError } from "../engine/types.ts";
import type { Examine } from "../jobs/check.ts";
import { GENERATIONS } from "../routes/generations.ts";
import { ApiError } from "../routes/shared/errors.ts";

/** Forms whose check is remembered: most files ask for the same few, line after line. */
const REMEMBERED = 10_000;

/** Finds what is wrong with the bodies of lines without a model: their fields, and the forms of answers that they ask for. */
export function bodyExaminer(): Examine {
  const known = new Map<string, string | undefined>();

  /** Why the form is refused. */
  async function refusalOf(constraint: Constraint): Promise<string | undefined> {
    const key = hash("sha256", JSON.stringify(constraint));
    if (known.has(key)) return known.get(key);
    const refusal = await checkConstraint(constraint).then(() => undefined, (error) => {
      if (error instanceof ConstraintError) return error.message;
      throw error;
    });
    if (known.size === REMEMBERED) known.clear();
    known.set(key, refusal);
    return refusal;
  }

  return async ({ url, body }) => {
    const generation = GENERATIONS.find((generation) => generation.url === url)!;
    try {
      for (const { param, constraint } of generation.check(body)) {
        const reason = await refusalOf(constraint);
        if (reason === undefined) continue;
        throw new ApiError(400, "invalid_constraint", `"${param}" cannot be used: ${reason}`, { param });
      }
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      return { code: error.code, message: error.message, param: error.param && `body.${error.param}` };
    }
  };
}
