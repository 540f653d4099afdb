/** Statements, walked through with what is known of uniforms and rows: what they load and compute is counted. */
import { type Dispatched, Expressions } from "./expressions.ts";
import { Scopes } from "./scopes.ts";
import type { Block, Expression, FunctionText, Module, Statement } from "./syntax.ts";
import { addCount, noCount, type Tally } from "./tally.ts";
import { assigned, has, names, rootOf } from "./text.ts";
import { BY_LANE, BY_TURN, numberOf, unknown, type Value, vector, word } from "./values.ts";

/** What was walked through as one takes different ways. */
export class Differs extends Error {}

type Way = "on" | "return" | "break" | "continue";

const CONTROL = ["return", "break", "continue"];
/** A lane's way through an entry point. */
export class Walk extends Expressions {
  #returned: Value | undefined;
  /** Loops, or lanes, that are counted as one. */
  #merged = 0;

  constructor(module: Module, of: Dispatched, private readonly group: readonly number[], tally: Tally) {
    super(module, of, new Scopes(), tally);
  }

  /** One lane; or all as one. Throws Differs where they are not. */
  lane(entry: FunctionText, lane: number | undefined): void {
    if (lane === undefined) this.#merged++;
    const flags = BY_LANE | (lane === undefined ? BY_TURN : 0);
    for (const { name, builtin, type } of entry.parameters) {
      const triple = (data: readonly number[]): Value => ({ type: vector("u32", 3), data, flags: 0 });
      if (builtin === "workgroup_id") this.scopes.declare(name, triple(this.group));
      else if (builtin === "num_workgroups") this.scopes.declare(name, triple(this.of.workgroups));
      else if (builtin === "local_invocation_index") {
        this.scopes.declare(name, lane === undefined ? unknown(type, flags) : word(lane, flags));
      } else throw new TypeError(`Cannot count with @builtin(${builtin})`);
    }
    this.#block(entry.body);
  }

  #block(block: Block): Way {
    return this.scopes.inside(() => {
      for (const statement of block) {
        const way = this.#statement(statement);
        if (way !== "on") return way;
      }
      return "on";
    });
  }

  #statement(s: Statement): Way {
    switch (s.kind) {
      case "let": {
        const value = s.value ? this.value(s.value) : unknown(s.type!);
        this.scopes.declare(
          s.name,
          s.type ? { ...value, type: s.type, abstract: false } : settled(value),
        );
        return "on";
      }
      case "assign":
        this.#assign(s.to, s.op, s.value);
        return "on";
      case "call":
        this.value(s.call);
        return "on";
      case "block":
        return this.#block(s.body);
      case "if":
        return this.#if(s);
      case "for":
        return this.#for(s);
      case "return":
        this.#returned = s.value ? this.value(s.value) : undefined;
        return "return";
      default:
        return s.kind;
    }
  }

  #if({ test, then, otherwise }: Statement & { kind: "if" }): Way {
    const value = this.value(test);
    const known = numberOf(value);
    const apart = (value.flags & BY_LANE) > 0 ? 1 : 0;
    this.tally.apart += apart;
    try {
      if (known !== undefined) return this.#block(known ? then : otherwise);
      if (value.flags & BY_TURN) throw new Differs();
      // Data decides: at most both.
      this.scopes.forget([...then, ...otherwise]);
      this.#block(then);
      this.#block(otherwise);
      this.scopes.forget([...then, ...otherwise]);
      return "on";
    } finally {
      this.tally.apart -= apart;
    }
  }

  #for(s: Statement & { kind: "for" }): Way {
    return this.scopes.inside(() => {
      if (s.first) this.#statement(s.first);
      return this.#merge(s) ?? this.#turns(s);
    });
  }

  /** Turn after turn. */
  #turns({ test, next, body }: Statement & { kind: "for" }): Way {
    for (;;) {
      const value = this.value(test);
      const known = numberOf(value);
      if (known === 0) return "on";
      if (known === undefined && value.flags & BY_TURN) throw new Differs();
      if (known === undefined) this.scopes.forget(body);
      const apart = value.flags & BY_LANE ? 1 : 0;
      this.tally.apart += apart;
      const way = this.#block(body);
      this.tally.apart -= apart;
      if (way === "return") return way;
      if (way === "break") return "on";
      if (next) this.#statement(next);
      if (known === undefined) {
        this.scopes.forget(body);
        return "on"; // once stands for what data decides
      }
    }
  }

  /** All turns as one; undefined where that cannot be. */
  #merge(s: Statement & { kind: "for" }): Way | undefined {
    const { test, next, body } = s;
    if (next?.kind !== "assign" || next.to.kind !== "name" || has(body, CONTROL)) return undefined;
    const counter = next.to.name;
    const changed = assigned(body);
    if (changed.has(counter) || [...names(test), ...names(next.value)].some((name) => changed.has(name))) {
      return undefined;
    }
    const start = this.scopes.find(counter);
    const turns = this.tally.quietly(() => this.#countTurns(s));
    if (turns === undefined) return undefined;
    if (turns.count === 0) {
      this.scopes.change(counter, start);
      this.value(test);
      return "on";
    }
    const saved = [...changed].flatMap((name): [string, Value][] => {
      const value = this.scopes.lookUp(name);
      return value ? [[name, value]] : [];
    });
    const { count, times, apart } = this.tally;
    const { depth } = this.scopes;
    this.tally.count = noCount();
    this.tally.times *= turns.count;
    this.#merged++;
    try {
      this.scopes.change(counter, unknown(start.type, turns.flags | BY_TURN));
      for (const [name, value] of saved) this.scopes.change(name, unknown(value.type, value.flags | BY_TURN));
      if (turns.flags & BY_LANE) this.tally.apart++;
      this.value(test);
      this.#block(body);
      this.#statement(next);
      const merged = this.tally.count;
      this.tally.count = count;
      addCount(count, merged);
      this.scopes.change(counter, turns.last);
      const stays = this.#merged > 1 ? BY_TURN : 0;
      for (const [name, value] of saved) {
        this.scopes.change(name, unknown(value.type, this.scopes.find(name).flags & BY_LANE | stays));
      }
      return "on";
    } catch (error) {
      if (!(error instanceof Differs)) throw error;
      this.tally.count = count;
      this.scopes.leaveTo(depth);
      this.scopes.change(counter, start);
      for (const [name, value] of saved) this.scopes.change(name, value);
      return undefined;
    } finally {
      this.tally.times = times;
      this.tally.apart = apart;
      this.#merged--;
    }
  }

  #countTurns({ test, next }: Statement & { kind: "for" }) {
    const counter = (next as { to: { name: string } }).to.name;
    let flags = 0;
    for (let count = 0;; count++) {
      const value = this.value(test);
      flags |= value.flags;
      const known = numberOf(value);
      if (known === undefined) return undefined;
      if (known === 0) return { count, flags, last: this.scopes.find(counter) };
      this.#statement(next!);
    }
  }

  #assign(to: Expression, op: string, from: Expression): void {
    const value = this.value(from);
    if (to.kind === "name" && this.scopes.lookUp(to.name)) {
      const old = this.scopes.find(to.name);
      const result = op ? this.operation(op, old, value) : { ...value, type: old.type };
      return this.scopes.change(to.name, settled(result));
    }
    const root = rootOf(to);
    const variable = this.module.variables.get(root);
    if (!variable || this.scopes.lookUp(root)) {
      // A part of a local vector or array: the whole is not followed further.
      this.indices(to);
      const old = this.scopes.find(root);
      return this.scopes.change(root, unknown(old.type, old.flags | value.flags));
    }
    const { type } = this.access(to, variable, op ? "both" : "store");
    if (op) this.operation(op, unknown(type), value);
  }

  protected override run(body: Block): Value | undefined {
    this.#returned = undefined;
    this.#block(body);
    const returned = this.#returned;
    this.#returned = undefined;
    return returned;
  }
}

/** A literal that becomes a variable has a type of its own. */
function settled(value: Value): Value {
  return value.abstract ? { ...value, abstract: false } : value;
}
