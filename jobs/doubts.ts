import type { JournalRecord } from "./journal_format.ts";
import type { PendingLine } from "./look_ahead.ts";

/** A line that an engine failed on: whose fault that was, is not known yet. */
export interface Doubt {
  readonly line: PendingLine;
  /** What the line gets if it was its own fault. */
  readonly record: JournalRecord;
}

/** So many failures of an engine with no good answer among them are to be looked into. */
export const MAX_DOUBTS = 16;
/** Failures on engines that were well that make an error of a line. */
const MAX_FAILURES = 2;
/** Failures that do while other engines are well: a line that fails everywhere must come to its end. */
const MAX_ASKED = 32;

/**
 * The lines that failed in their engines. Only a good answer of the same engine tells that it is well, and then the
 * lines are asked once more before they are errors; an engine that is not well says nothing of its lines.
 */
export class Doubts {
  private readonly byEngine = new Map<string, Doubt[]>();
  /** Of lines that failed before: on engines that were well, and on any. */
  private readonly failures = new Map<number, { proven: number; asked: number }>();

  /** How many failures an engine has had since its last good answer. */
  add(engine: string, doubt: Doubt): number {
    const doubts = this.byEngine.get(engine) ?? [];
    doubts.push(doubt);
    this.byEngine.set(engine, doubts);
    return doubts.length;
  }

  /** An engine that has failed since its last good answer; undefined where none has. */
  engine(): string | undefined {
    return this.byEngine.keys().next().value;
  }

  /** The failures of an engine since its last good answer. */
  of(engine: string): { count: number; last: Doubt | undefined } {
    const doubts = this.byEngine.get(engine) ?? [];
    return { count: doubts.length, last: doubts.at(-1) };
  }

  /** The engine has given a good answer: the lines to ask once more, and the errors of those that were asked enough. */
  well(engine: string): { again: PendingLine[]; errors: JournalRecord[] } {
    return this.settle(engine, 1, 1);
  }

  /** Nobody knows whether the engine is well, and its lines are asked again; `others` says whether others are well. */
  unwell(engine: string, others: boolean): { again: PendingLine[]; errors: JournalRecord[] } {
    return this.settle(engine, 0, others ? 1 : 0);
  }

  /** The line has got an answer. */
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
