import type { JournalRecord } from "../journal/journal_format.ts";
import type { PendingLine } from "./look_ahead.ts";

/** A line that failed on an engine, while it is unknown whether the line or the engine is at fault. */
export interface Suspect {
  readonly line: PendingLine;
  /** The error record that the line gets if the line is at fault. */
  readonly record: JournalRecord;
}

/** Number of failures without a good answer after which the engine is probed. */
export const MAX_SUSPECTS = 16;
/** Number of failures on working engines after which a line becomes an error. */
const MAX_FAILURES = 2;
/** Number of failures on any engine after which a line becomes an error, while other engines work. */
const MAX_ASKED = 32;

/**
 * Tracks lines that failed, per engine. A good answer shows that an engine works; its failed lines are then retried
 * once before they become errors. The failures of a broken engine do not count against its lines.
 */
export class Suspects {
  private readonly byEngine = new Map<string, Suspect[]>();
  /** Number of failures by line index: `proven` on working engines, `asked` on any engine. */
  private readonly failures = new Map<number, { proven: number; asked: number }>();

  /** Adds a failure. Returns the number of the engine's failures since its last good answer. */
  add(engine: string, suspect: Suspect): number {
    const suspects = this.byEngine.get(engine) ?? [];
    suspects.push(suspect);
    this.byEngine.set(engine, suspects);
    return suspects.length;
  }

  /** Returns an engine with failures since its last good answer, or undefined. */
  engine(): string | undefined {
    return this.byEngine.keys().next().value;
  }

  /** Returns the failures of an engine since its last good answer. */
  of(engine: string): { count: number; last: Suspect | undefined } {
    const suspects = this.byEngine.get(engine) ?? [];
    return { count: suspects.length, last: suspects.at(-1) };
  }

  /** Records a good answer. Returns the lines to retry, and the error records of lines that have failed too often. */
  well(engine: string): { again: PendingLine[]; errors: JournalRecord[] } {
    return this.settle(engine, 1, 1);
  }

  /**
   * Returns the lines to retry when it is unknown whether their engine works. `others`: whether another engine works.
   */
  unwell(engine: string, others: boolean): { again: PendingLine[]; errors: JournalRecord[] } {
    return this.settle(engine, 0, others ? 1 : 0);
  }

  /** Forgets a line's failures once it has an answer. */
  answered({ index }: PendingLine): void {
    this.failures.delete(index);
  }

  private settle(
    engine: string,
    proven: 0 | 1,
    asked: 0 | 1,
  ): { again: PendingLine[]; errors: JournalRecord[] } {
    const again: PendingLine[] = [];
    const errors: JournalRecord[] = [];
    for (const { line, record } of this.byEngine.get(engine) ?? []) {
      const failures = this.failures.get(line.index) ?? { proven: 0, asked: 0 };
      failures.proven += proven;
      failures.asked += asked;
      this.failures.set(line.index, failures);
      if (failures.proven < MAX_FAILURES && failures.asked < MAX_ASKED) again.push(line);
      else errors.push(record);
    }
    this.byEngine.delete(engine);
    for (const { index } of errors) this.failures.delete(index);
    return { again, errors };
  }
}
