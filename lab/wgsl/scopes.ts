/** Values of variables by name, from the innermost block outwards. */
import { assigned } from "./text.ts";
import type { Block } from "./syntax.ts";
import { unknown, type Value } from "./values.ts";

export class Scopes {
  #scopes: Map<string, Value>[] = [new Map()];

  get depth(): number {
    return this.#scopes.length;
  }

  /** Leaves all blocks beyond a depth. */
  leaveTo(depth: number): void {
    this.#scopes.length = depth;
  }

  /** Does something in a block of its own. */
  inside<T>(of: () => T): T {
    const { depth } = this;
    this.#scopes.push(new Map());
    try {
      return of();
    } finally {
      this.leaveTo(Math.min(depth, this.depth));
    }
  }

  /** Does something where only some values are known, as in a function. */
  apart<T>(values: ReadonlyMap<string, Value>, of: () => T): T {
    const outer = this.#scopes;
    this.#scopes = [new Map(values)];
    try {
      return of();
    } finally {
      this.#scopes = outer;
    }
  }

  declare(name: string, value: Value): void {
    this.#scopes.at(-1)!.set(name, value);
  }

  lookUp(name: string): Value | undefined {
    for (let i = this.#scopes.length - 1; i >= 0; i--) {
      const value = this.#scopes[i].get(name);
      if (value) return value;
    }
    return undefined;
  }

  find(name: string): Value {
    const value = this.lookUp(name);
    if (!value) throw new TypeError(`Cannot count: "${name}" is not declared`);
    return value;
  }

  change(name: string, value: Value): void {
    for (let i = this.#scopes.length - 1; i >= 0; i--) {
      if (!this.#scopes[i].has(name)) continue;
      this.#scopes[i].set(name, value);
      return;
    }
  }

  /** What a block may assign is no longer known. */
  forget(block: Block): void {
    for (const name of assigned(block)) {
      const value = this.lookUp(name);
      if (value) this.change(name, unknown(value.type, value.flags));
    }
  }
}
