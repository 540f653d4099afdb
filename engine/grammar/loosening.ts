/** Compiles constraints in which schemas of tools may be loosened. */

import { COARSEST } from "./json_schema/schema.ts";
import { grammarsOf, type LooseSchema, looseSchemas, type Sources } from "./source.ts";
import { type Asker, type Constraint, ConstraintError, type LoosenedSchema } from "./types.ts";

/** Maximum milliseconds for compiling the schemas of a constraint one by one. */
const LOOSEN_MS = 2000;
/**
 * Maximum number of loosened schemas that are remembered, so that each is reported only once. Further schemas are
 * counted and not reported.
 */
const MOST_TOLD = 1000;

/** Compiles constraints, and counts the loosened keywords. */
export class Loosening<G extends { free(): void }> {
  /** The number of loosened keywords, counted once per schema. */
  loosened = 0;
  /** Loosened schemas that were already reported. */
  readonly #told = new Set<string>();

  constructor(
    private readonly compileSources: (sources: Sources, asker: Asker) => Promise<G>,
    private readonly onLoosened: (schema: LoosenedSchema) => void,
  ) {}

  /**
   * Compiles a constraint. If the library refuses it, loosens the tool schemas that cause the refusal further, then all
   * tool schemas.
   */
  async compile(constraint: Constraint, asker: Asker): Promise<G> {
    const schemas = looseSchemas(constraint);
    const levels = new Map(schemas.map((schema) => [schema, 0]));
    const levelOf = (schema: LooseSchema) => levels.get(schema) ?? 0;
    const until = performance.now() + LOOSEN_MS;
    for (let round = 0;; round++) {
      try {
        const sources = await grammarsOf(constraint, levelOf);
        const compiled = await this.compileSources(sources, asker);
        this.#note(sources.loosened);
        return compiled;
      } catch (error) {
        if (!(error instanceof ConstraintError) || error.isUnsatisfiable) throw error;
        if (schemas.length === 0 || schemas.every((schema) => levelOf(schema) === COARSEST)) throw error;
        const changed = round === 0 && schemas.length > 1 && await this.#loosenRefused(levels, asker, until);
        if (!changed) {
          for (const [schema, level] of levels) levels.set(schema, Math.min(level + 1, COARSEST));
        }
      }
    }
  }

  /** Loosens each schema that the library refuses on its own, until it compiles. Returns whether any changed. */
  async #loosenRefused(levels: Map<LooseSchema, number>, asker: Asker, until: number): Promise<boolean> {
    let changed = false;
    for (const [schema, level] of levels) {
      for (let next: number = level; next < COARSEST && performance.now() < until; next++) {
        try {
          (await this.compileSources(await grammarsOf(schema, () => next), asker)).free();
          break;
        } catch (error) {
          if (!(error instanceof ConstraintError) || error.isUnsatisfiable) throw error;
          levels.set(schema, next + 1);
          changed = true;
        }
      }
    }
    return changed;
  }

  /** Reports loosened schemas that were not reported before. */
  #note(loosened: readonly LoosenedSchema[]): void {
    for (const schema of loosened) {
      const key = JSON.stringify(schema);
      if (this.#told.has(key)) continue;
      this.#told.add(key);
      this.loosened += schema.keywords.length;
      // The log is bounded, because a client may change its schemas all the time.
      if (this.#told.size <= MOST_TOLD) this.onLoosened(schema);
      else this.#told.delete(key);
    }
  }
}

/** Maximum number of keywords that a message names per schema. */
const SHOWN = 8;

/** Returns a log line about a loosened schema. Its names come from strangers, so they are shortened and escaped. */
export function describeLoosened({ tool, keywords }: LoosenedSchema): string {
  const shown = keywords.slice(0, SHOWN).map((keyword) =>
    JSON.stringify(keyword.slice(0, 100).toWellFormed())
  );
  const more = keywords.length > SHOWN ? ` and ${keywords.length - SHOWN} more` : "";
  return `The tool ${
    JSON.stringify(tool)
  }: calls may break these parts of its schema ("" is all of it), which ` +
    `cannot be enforced: ${shown.join(", ")}${more}`;
}
