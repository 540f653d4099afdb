/** Words the library's refusals of constraints. */

import { GrammarLibraryError } from "../../ffi/grammar.ts";
import { ConstraintError } from "./types.ts";

const LONGEST_MESSAGE = 500;

/**
 * Matches the messages of llguidance and of rust-grammar/src/compile.rs for constraints that no answer can match. A
 * message may quote the constraint, so only its beginning counts.
 */
const UNSATISFIABLE = /^(?:Unsatisfiable schema|The constraint allows no answer)/;

/** Rethrows a refusal of the library as ConstraintError. */
export async function refusable<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof GrammarLibraryError)) throw error;
    throw new ConstraintError(plain(error.message), UNSATISFIABLE.test(error.message));
  }
}

/** Returns llguidance's message on one line of limited length, without advice for its own users. */
function plain(message: string): string {
  if (message.includes("coerce_one_of")) {
    return "The schema's oneOf is supported only where its schemas plainly exclude each other: by their types, or by constants of a " +
      "property that they require. Use anyOf where more than one may be valid";
  }
  // The library's excerpts show the translated grammar, which the sender of the constraint has never seen.
  const regex = /invalid regex ("(?:[^"\\]|\\.)*").*?\berror: ([^\n]+)/s.exec(message);
  const short = regex ? `Invalid regex ${regex[1]}: ${regex[2]}` : message.replace(/\s*<non-verbose\/>/, "")
    .replace(/\n\s*\d+ \| [\s\S]*$/, "").replace(/^at (\d+)\((\d+)\): /, "Line $1, column $2: ")
    .replaceAll(/\s+/g, " ").trim();
  return short.length > LONGEST_MESSAGE ? `${short.slice(0, LONGEST_MESSAGE).toWellFormed()} …` : short;
}
