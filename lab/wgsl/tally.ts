/** What is counted, and how often what is walked through counts. */
import type { Type, Variable } from "./syntax.ts";
import { BY_LANE, isFloat, scalarOf, widthOf } from "./values.ts";

/** Bytes and accesses of one storage buffer. */
export interface Traffic {
  /** Bytes that lanes load; what all lanes of a workgroup load from one place counts once. */
  loaded: number;
  stored: number;
  /** Times that any lane reads or writes an element. */
  accesses: number;
}

export interface Count {
  /** By the variable's name. */
  readonly storage: Map<string, Traffic>;
  /** Bytes of workgroup memory, read and written. */
  shared: number;
  /** Operations on floats, by component; fma is two. */
  floats: number;
  /** Operations on integers and truths, by component. */
  integers: number;
  barriers: number;
}

export function noCount(): Count {
  return { storage: new Map(), shared: 0, floats: 0, integers: 0, barriers: 0 };
}

export function addCount(to: Count, more: Count): void {
  for (const [name, { loaded, stored, accesses }] of more.storage) {
    const all = trafficOf(to, name);
    all.loaded += loaded;
    all.stored += stored;
    all.accesses += accesses;
  }
  to.shared += more.shared;
  to.floats += more.floats;
  to.integers += more.integers;
  to.barriers += more.barriers;
}

function trafficOf({ storage }: Count, name: string): Traffic {
  let traffic = storage.get(name);
  if (!traffic) storage.set(name, traffic = { loaded: 0, stored: 0, accesses: 0 });
  return traffic;
}

export type Access = "load" | "store" | "both";

/** A count under way. */
export class Tally {
  /** Statements around this one that lanes of a workgroup do not all do. */
  apart = 0;

  /** What is counted counts `times`; with several `lanes` one stands for all of a workgroup. */
  constructor(public count: Count, public times: number, readonly lanes: number) {}

  operations(type: Type, each: number): void {
    const operations = this.times * each * widthOf(type);
    if (isFloat(scalarOf(type))) this.count.floats += operations;
    else this.count.integers += operations;
  }

  barriers(number: number): void {
    this.count.barriers += number * this.times / this.lanes;
  }

  /** An access to so many bytes of a variable; `flags` are those of its indices. */
  access(variable: Variable, bytes: number, how: Access, flags: number): void {
    if (variable.space === "workgroup") {
      this.count.shared += this.times * bytes * (how === "both" ? 2 : 1);
      return;
    }
    const traffic = trafficOf(this.count, variable.name);
    traffic.accesses += this.times;
    // What all lanes take from one place comes once.
    const lanes = this.apart === 0 && !(flags & BY_LANE) ? this.lanes : 1;
    if (how !== "store") traffic.loaded += this.times * bytes / lanes;
    if (how !== "load") traffic.stored += this.times * bytes;
  }

  /** Counts nothing meanwhile. */
  quietly<T>(of: () => T): T {
    const { times } = this;
    this.times = 0;
    try {
      return of();
    } finally {
      this.times = times;
    }
  }
}
