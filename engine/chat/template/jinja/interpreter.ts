import type { Paced } from "../../../pacing/pauses.ts";
import type { Macro, Pending } from "./access.ts";
import {
  BODY,
  CALLER,
  type Expression,
  type Loop,
  type MacroSyntax,
  type Statement,
  type Target,
  TEXT,
} from "./syntax.ts";
import { str } from "./texts.ts";
import {
  Args,
  type Attributes,
  equal,
  Func,
  iterate,
  joined,
  Namespace,
  truthy,
  Tuple,
  Undefined,
  type Value,
  Work,
} from "./values.ts";

/** Runs a Jinja template. The interpreter pauses after each slice of work. */

/** Cost in steps of a loop's pass or a macro's call, without its statements. */
const STEPS_PER_PASS = 8;

/** A scope of template variables. `set` changes the innermost scope. */
export class Scope {
  readonly #values: Map<string, Value>;

  constructor(private readonly parent?: Scope, values?: Map<string, Value>) {
    this.#values = values ?? new Map();
  }

  get(name: string): Value {
    const value = this.#values.get(name);
    if (value !== undefined) return value;
    return this.parent ? this.parent.get(name) : new Undefined(`'${name.slice(0, 100)}' is undefined`);
  }

  set(name: string, value: Value): void {
    this.#values.set(name, value);
  }
}

/** How a template's block ends: `break` and `continue` end a loop's body early. */
type End = "break" | "continue" | undefined;

export class Interpreter {
  #out = "";

  constructor(readonly work: Work) {}

  /** Returns the text that a template writes. */
  *render(template: readonly Statement[], scope: Scope): Paced<string> {
    return (yield* this.#captured(template, scope))[0];
  }

  /** Runs statements and returns the text that they write. */
  *#captured(statements: readonly Statement[], scope: Scope): Paced<[string, End]> {
    const outer = this.#out;
    this.#out = "";
    const end = yield* this.#body(statements, scope);
    const text = this.#out;
    this.#out = outer;
    return [text, end];
  }

  #write(text: string): void {
    this.#out = joined(this.#out, text);
    this.work.spend(text.length / 64);
  }

  *#body(statements: readonly Statement[], scope: Scope): Paced<End> {
    for (const statement of statements) {
      if (this.work.due) yield;
      this.work.spend(1);
      if (this.#simple(statement, scope)) continue;
      const end = yield* this.#statement(statement, scope);
      if (end) return end;
    }
  }

  /** Runs a statement that cannot pause, without a generator, for speed. Returns false for other statements. */
  #simple(statement: Statement, scope: Scope): boolean {
    if (statement.kind === "text") this.#write(statement.text);
    else if (statement.kind === "output" && !statement.value.calls) {
      this.#write(str(this.#evaluate(statement.value, scope), this.work));
    } else if (statement.kind === "set" && !statement.value.calls) {
      assign(statement.target, this.#evaluate(statement.value, scope), scope, this.work);
    } else return false;
    return true;
  }

  *#statement(statement: Statement, scope: Scope): Paced<End> {
    switch (statement.kind) {
      case "output":
        return this.#write(str(yield* this.#paced(statement.value, scope), this.work)) as undefined;
      case "if": {
        const { test, body, otherwise } = statement;
        return yield* this.#body(truthy(yield* this.#paced(test, scope)) ? body : otherwise, scope);
      }
      case "for":
        return yield* this.#loop(statement, yield* this.#paced(statement.items, scope), scope, 1);
      case "set":
        return assign(
          statement.target,
          yield* this.#paced(statement.value, scope),
          scope,
          this.work,
        ) as undefined;
      case "capture":
        return yield* this.#capture(statement, scope);
      case "macro":
        return scope.set(statement.macro.name, this.#macro(statement.macro, scope)) as undefined;
      case "call": {
        const inner = new Scope(scope, new Map([[BODY, this.#macro(statement.caller, scope)]]));
        return this.#write(str(yield* this.#paced(statement.call, inner), this.work)) as undefined;
      }
      case "with": {
        const inner = new Scope(scope);
        for (const [target, value] of statement.values) {
          assign(target, yield* this.#paced(value, scope), inner, this.work);
        }
        return yield* this.#body(statement.body, inner);
      }
      case "break":
      case "continue":
        return statement.kind;
    }
  }

  *#capture({ target, filters, body }: Extract<Statement, { kind: "capture" }>, scope: Scope): Paced<End> {
    const [text, end] = yield* this.#captured(body, new Scope(scope));
    const value = this.#evaluate(filters, new Scope(scope, new Map([[TEXT, text]])));
    if (target === undefined) this.#write(str(value, this.work));
    else assign(target, value, scope, this.work);
    return end;
  }

  *#loop(loop: Loop, over: Value, scope: Scope, depth: number): Paced<End> {
    const items = yield* this.#items(loop, over, scope);
    const again = (args: Args) => pending(() => this.#again(loop, args.list[0], scope, depth + 1));
    const state = new LoopState(items, depth, loop.recursive ? again : undefined);
    const around = new Scope(scope, new Map<string, Value>([["loop", state]]));
    for (const item of items) {
      state.at++;
      this.work.spend(STEPS_PER_PASS);
      if (this.work.due) yield;
      const inner = new Scope(around);
      assign(loop.target, item, inner, this.work);
      if ((yield* this.#body(loop.body, inner)) === "break") break;
    }
    return items.length === 0 ? yield* this.#body(loop.otherwise, new Scope(scope)) : undefined;
  }

  /** Returns the items of a loop that meet its condition. */
  *#items({ target, test }: Loop, over: Value, scope: Scope): Paced<readonly Value[]> {
    const items = iterate(over, this.work);
    if (!test) return items;
    const chosen: Value[] = [];
    for (const item of items) {
      this.work.spend(STEPS_PER_PASS);
      if (this.work.due) yield;
      const inner = new Scope(scope);
      assign(target, item, inner, this.work);
      if (truthy(yield* this.#paced(test, inner))) chosen.push(item);
    }
    return chosen;
  }

  /** Runs a recursive loop on other items. */
  *#again(loop: Loop, over: Value, scope: Scope, depth: number): Paced<string> {
    this.work.enter();
    const outer = this.#out;
    this.#out = "";
    yield* this.#loop(loop, over, scope, depth);
    const text = this.#out;
    this.#out = outer;
    this.work.leave();
    return text;
  }

  #macro(macro: MacroSyntax, scope: Scope): Macro & Attributes {
    return {
      begin: (args) => pending(() => this.#called(macro, args, scope)),
      attribute: (name) => name === "name" ? macro.name : undefined,
    };
  }

  *#called({ name, parameters, body }: MacroSyntax, args: Args, scope: Scope): Paced<string> {
    this.work.enter();
    this.work.spend(STEPS_PER_PASS);
    const inner = new Scope(scope);
    const named = new Map(args.named);
    for (const [at, { name, fallback }] of parameters.entries()) {
      let value = at < args.list.length ? args.list[at] : named.get(name);
      named.delete(name);
      if (value === undefined && fallback) value = yield* this.#paced(fallback, inner);
      inner.set(name, value === undefined ? new Undefined(`parameter '${name}' was not provided`) : value);
    }
    const caller = named.get(CALLER);
    if (name !== CALLER) {
      inner.set(CALLER, caller === undefined ? new Undefined("there is no caller") : caller);
    }
    named.delete(CALLER);
    inner.set("varargs", Tuple.make(args.list.slice(parameters.length)));
    inner.set("kwargs", named);
    const [text] = yield* this.#captured(body, inner);
    this.work.leave();
    return text;
  }

  /** Evaluates an expression that may call macros. */
  *#paced(expression: Expression, scope: Scope): Paced<Value> {
    if (!expression.calls) return this.#evaluate(expression, scope);
    switch (expression.kind) {
      case "apply": {
        const values: Value[] = [];
        for (const operand of expression.operands) values.push(yield* this.#paced(operand, scope));
        const result = expression.apply(values, this.work);
        return isPending(result) ? yield* result.pending() : result;
      }
      case "and":
      case "or": {
        const left = yield* this.#paced(expression.left, scope);
        return truthy(left) === (expression.kind === "or")
          ? left
          : yield* this.#paced(expression.right, scope);
      }
      case "if": {
        const test = truthy(yield* this.#paced(expression.test, scope));
        return yield* this.#paced(test ? expression.then : expression.otherwise, scope);
      }
      case "compare": {
        let left = yield* this.#paced(expression.first, scope);
        for (const [comparison, operand] of expression.rest) {
          const right = yield* this.#paced(operand, scope);
          if (!comparison(left, right, this.work)) return false;
          left = right;
        }
        return true;
      }
      default:
        return this.#evaluate(expression, scope);
    }
  }

  /** Evaluates an expression that calls no macros. */
  #evaluate(expression: Expression, scope: Scope): Value {
    this.work.spend(1);
    switch (expression.kind) {
      case "constant":
        return expression.value;
      case "name":
        return scope.get(expression.name);
      case "apply": {
        this.work.spend(1);
        const values = expression.operands.map((operand) => this.#evaluate(operand, scope));
        const result = expression.apply(values, this.work);
        if (isPending(result)) throw new Error("a macro cannot have the name of a method");
        return result;
      }
      case "and":
      case "or": {
        const left = this.#evaluate(expression.left, scope);
        return truthy(left) === (expression.kind === "or") ? left : this.#evaluate(expression.right, scope);
      }
      case "if": {
        const { test, then, otherwise } = expression;
        return this.#evaluate(truthy(this.#evaluate(test, scope)) ? then : otherwise, scope);
      }
      case "compare": {
        let left = this.#evaluate(expression.first, scope);
        return expression.rest.every(([comparison, operand]) => {
          const right = this.#evaluate(operand, scope);
          const holds = comparison(left, right, this.work);
          left = right;
          return holds;
        });
      }
    }
  }
}

function pending(run: () => Paced<Value>): Pending {
  return { pending: run };
}

function isPending(value: Value): value is Pending {
  return typeof value === "object" && value !== null && "pending" in value;
}

function assign(target: Target, value: Value, scope: Scope, work: Work): void {
  if (typeof target === "string") return scope.set(target, value);
  if ("namespace" in target) {
    const space = scope.get(target.namespace);
    if (!(space instanceof Namespace)) throw new Error("cannot assign attribute on non-namespace object");
    space.fields.set(target.attribute, value);
    return;
  }
  const values = iterate(value, work);
  if (values.length !== target.length) {
    throw new Error(`cannot unpack ${values.length} values into ${target.length} names`);
  }
  for (const [at, one] of target.entries()) assign(one, values[at], scope, work);
}

/** The template variable `loop` inside a loop. */
class LoopState implements Attributes {
  at = -1;
  #changed: Value;

  constructor(
    private readonly items: readonly Value[],
    private readonly depth: number,
    private readonly again: ((args: Args) => Pending) | undefined,
  ) {}

  begin(args: Args): Pending {
    if (!this.again) throw new Error("the loop is not recursive");
    return this.again(args);
  }

  attribute(name: string): Value {
    const { at, items: { length } } = this;
    switch (name) {
      case "index":
        return at + 1;
      case "index0":
        return at;
      case "revindex":
        return length - at;
      case "revindex0":
        return length - at - 1;
      case "first":
        return at === 0;
      case "last":
        return at === length - 1;
      case "length":
        return length;
      case "depth":
        return this.depth;
      case "depth0":
        return this.depth - 1;
      case "previtem":
        return at > 0 ? this.items[at - 1] : new Undefined("there is no previous item");
      case "nextitem":
        return at + 1 < length ? this.items[at + 1] : new Undefined("there is no next item");
      case "cycle":
        return new Func(({ list }) => list[at % list.length]);
      case "changed":
        return new Func(({ list }, work) => {
          const same = this.#changed !== undefined && equal(this.#changed, list, work);
          this.#changed = list;
          return !same;
        });
    }
  }
}
