import { attributeOf, call, itemOf, slice } from "./access.ts";
import { FILTERS } from "./filters.ts";
import { type Token, unquoted } from "./lexer.ts";
import { negative, parseFloating, parseInteger } from "./numbers.ts";
import { OPERATORS } from "./operators.ts";
import { apply, BODY, CALLER, type Comparison, constant, type Expression } from "./syntax.ts";
import { TESTS } from "./tests.ts";
import {
  Args,
  compare,
  contains,
  equal,
  iterate,
  joined,
  key,
  truthy,
  Tuple,
  Undefined,
  type Value,
  type Work,
} from "./values.ts";
import { METHOD_NAMES } from "./methods.ts";
import { str } from "./texts.ts";

const COMPARISONS: Readonly<Record<string, Comparison>> = {
  "==": equal,
  "!=": (a, b, work) => !equal(a, b, work),
  "<": (a, b, work) => compare(a, b, work) < 0,
  "<=": (a, b, work) => compare(a, b, work) <= 0,
  ">": (a, b, work) => compare(a, b, work) > 0,
  ">=": (a, b, work) => compare(a, b, work) >= 0,
  in: (a, b, work) => contains(b, a, work),
  "not in": (a, b, work) => !contains(b, a, work),
};

const CONSTANTS: ReadonlyMap<string, Value> = new Map<string, Value>([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);

interface Arguments {
  readonly operands: Expression[];
  /** A name for each operand of a call: "" for a positional one, "*" for a list, "**" for a dict of named operands. */
  readonly names: string[];
}

/** Parses Jinja expressions with Jinja's precedences. */
export class ExpressionParser {
  protected at = 0;
  /** Whether the next call gets the body of a `call` block as an argument. */
  protected caller = false;

  constructor(protected readonly tokens: readonly Token[]) {}

  protected get token(): Token {
    return this.tokens[this.at];
  }

  /** Returns whether the token is one of these signs or names. */
  protected is(...texts: string[]): boolean {
    const { type, text } = this.token;
    return (type === "op" || type === "name") && texts.includes(text);
  }

  /** Consumes the sign or name if it comes next. Returns whether it did. */
  protected skip(text: string): boolean {
    if (!this.is(text)) return false;
    this.at++;
    return true;
  }

  protected expect(text: string): void {
    if (!this.skip(text)) throw this.error(`${text} is missing`);
  }

  protected name(): string {
    if (this.token.type !== "name") throw this.error("a name is missing");
    return this.tokens[this.at++].text;
  }

  protected error(reason: string): Error {
    const { line, type, text } = this.token;
    return new Error(`line ${line}: ${reason} (found ${JSON.stringify(text || type)})`);
  }

  expression(): Expression {
    let then = this.#or();
    while (this.skip("if")) {
      const test = this.#or();
      const otherwise: Expression = this.skip("else")
        ? this.expression()
        : constant(new Undefined("the inline if-expression has no else"));
      const calls = then.calls || test.calls || otherwise.calls;
      then = { kind: "if", test, then, otherwise, calls };
    }
    return then;
  }

  /** Parses values between commas: one value, or a tuple. With `plain`, the caller parses an `if`. */
  protected tuple(plain = false): Expression {
    const one = () => plain ? this.#or() : this.expression();
    const first = one();
    if (!this.is(",")) return first;
    const items = [first];
    while (this.skip(",")) {
      if (this.token.type === "}}" || this.token.type === "%}" || this.is(")")) break;
      items.push(one());
    }
    return apply(items, Tuple.make);
  }

  #or(): Expression {
    let left = this.#and();
    while (this.skip("or")) left = both("or", left, this.#and());
    return left;
  }

  #and(): Expression {
    let left = this.#not();
    while (this.skip("and")) left = both("and", left, this.#not());
    return left;
  }

  #not(): Expression {
    return this.skip("not") ? apply([this.#not()], ([value]) => !truthy(value)) : this.#compare();
  }

  #compare(): Expression {
    const first = this.#sum();
    const rest: [Comparison, Expression][] = [];
    for (;;) {
      const negated = this.is("not") && this.tokens[this.at + 1].text === "in";
      if (negated) this.at++;
      const comparison = this.is(...Object.keys(COMPARISONS)) &&
        COMPARISONS[(negated ? "not " : "") + this.token.text];
      if (!comparison) break;
      this.at++;
      rest.push([comparison, this.#sum()]);
    }
    if (rest.length === 0) return first;
    return { kind: "compare", first, rest, calls: first.calls || rest.some(([, value]) => value.calls) };
  }

  #sum(): Expression {
    return this.#operators(["+", "-"], () => this.#joined());
  }

  #joined(): Expression {
    const first = this.#product();
    if (!this.is("~")) return first;
    const parts = [first];
    while (this.skip("~")) parts.push(this.#product());
    return apply(
      parts,
      (values, work) => values.reduce<string>((text, value) => joined(text, str(value, work)), ""),
    );
  }

  #product(): Expression {
    return this.#operators(["*", "/", "//", "%"], () => this.#operators(["**"], () => this.#unary()));
  }

  #operators(texts: readonly string[], operand: () => Expression): Expression {
    let left = operand();
    while (this.is(...texts)) {
      const operator = OPERATORS[this.tokens[this.at++].text];
      left = apply([left, operand()], ([a, b], work) => operator(a, b, work));
    }
    return left;
  }

  #unary(filtered = true): Expression {
    let value: Expression;
    if (this.skip("-")) value = apply([this.#unary(false)], ([value]) => negative(value));
    else if (this.skip("+")) value = this.#unary(false);
    else value = this.#postfix(this.#primary());
    return filtered ? this.#filters(this.#postfix(value)) : this.#postfix(value);
  }

  /** Parses attributes, subscripts and calls after a value. */
  #postfix(value: Expression): Expression {
    for (;;) {
      if (this.skip(".")) value = this.#attribute(value);
      else if (this.skip("[")) value = this.#subscript(value);
      else if (this.is("(")) value = this.#call(value);
      else return value;
    }
  }

  #attribute(object: Expression): Expression {
    const { type, text } = this.token;
    this.at++;
    if (type === "int") return apply([object], ([value], work) => itemOf(value, Number(text), work));
    if (type !== "name") throw this.error("an attribute's name is missing");
    if (this.is("(") && METHOD_NAMES.has(text)) {
      const { operands, names } = this.#arguments();
      return apply([object, ...operands], ([value, ...values], work) => {
        return call(attributeOf(value, text, work), argsOf(values, names, work), work);
      });
    }
    return apply([object], ([value], work) => attributeOf(value, text, work));
  }

  #subscript(object: Expression): Expression {
    const none = constant(null);
    const bounds = [this.is(":") ? none : this.expression()];
    while (bounds.length < 3 && this.skip(":")) {
      bounds.push(this.is(":", "]") ? none : this.expression());
    }
    this.expect("]");
    if (bounds.length === 1) {
      return apply([object, bounds[0]], ([value, index], work) => itemOf(value, index, work));
    }
    return apply([object, ...bounds], ([value, ...parts], work) => slice(value, parts, work));
  }

  #call(callee: Expression): Expression {
    const { caller } = this;
    this.caller = false;
    const { operands, names } = this.#arguments();
    if (caller) {
      operands.push({ kind: "name", name: BODY, calls: false });
      names.push(CALLER);
    }
    return apply(
      [callee, ...operands],
      ([callee, ...values], work) => call(callee, argsOf(values, names, work), work),
      true,
    );
  }

  #arguments(): Arguments {
    this.expect("(");
    const operands: Expression[] = [];
    const names: string[] = [];
    while (!this.is(")")) {
      const { type, text } = this.token;
      const next = this.tokens[this.at + 1];
      const isNamed = type === "name" && next.type === "op" && next.text === "=";
      const isSpread = this.is("*", "**");
      if (isNamed) this.at += 2;
      else if (isSpread) this.at++;
      names.push(isNamed || isSpread ? text : "");
      operands.push(this.expression());
      if (!this.is(")")) this.expect(",");
    }
    this.expect(")");
    return { operands, names };
  }

  #filters(value: Expression): Expression {
    for (;;) {
      if (this.is("|")) value = this.filter(value);
      else if (this.is("is")) value = this.#test(value);
      else if (this.is("(")) value = this.#call(value);
      else return value;
    }
  }

  /** Parses filters, which begin with "|". The first filter of a `filter` block lacks the sign. */
  protected filter(value: Expression, begun = false): Expression {
    while (begun || this.skip("|")) {
      begun = false;
      const { line } = this.token;
      const name = this.#dotted();
      const { operands, names } = this.is("(") ? this.#arguments() : NO_ARGUMENTS;
      const run = FILTERS.get(name);
      value = apply([value, ...operands], ([value, ...values], work) => {
        if (!run) throw new Error(`line ${line}: there is no filter named ${JSON.stringify(name)}`);
        return run(value, argsOf(values, names, work), work);
      });
    }
    return value;
  }

  #test(value: Expression): Expression {
    this.expect("is");
    const negated = this.skip("not");
    const { line } = this.token;
    const name = this.#dotted();
    let { operands, names }: Arguments = NO_ARGUMENTS;
    const { type } = this.token;
    if (this.is("(")) ({ operands, names } = this.#arguments());
    else if (
      this.is("[", "{") || type === "string" || type === "int" || type === "float" ||
      type === "name" && !this.is("else", "or", "and", "is", "if", "in", "not", "recursive")
    ) operands = [this.#postfix(this.#primary())];
    const run = TESTS.get(name);
    return apply([value, ...operands], ([value, ...values], work) => {
      if (!run) throw new Error(`line ${line}: there is no test named ${JSON.stringify(name)}`);
      return run(value, argsOf(values, names, work), work) !== negated;
    });
  }

  #dotted(): string {
    let name = this.name();
    while (this.skip(".")) name += `.${this.name()}`;
    return name;
  }

  #primary(): Expression {
    const { type, text } = this.token;
    if (type === "op") return this.#bracket();
    this.at++;
    switch (type) {
      case "name":
        return CONSTANTS.has(text)
          ? constant(CONSTANTS.get(text))
          : { kind: "name", name: text, calls: false };
      case "string": {
        let value = unquoted(text);
        while (this.token.type === "string") value += unquoted(this.tokens[this.at++].text);
        return constant(value);
      }
      case "int":
        return constant(/^0[box]/i.test(text) ? Number(text.replaceAll("_", "")) : parseInteger(text));
      case "float":
        return constant(parseFloating(text));
      default:
        this.at--;
        throw this.error("a value is missing");
    }
  }

  #bracket(): Expression {
    if (this.skip("(")) {
      const value = this.is(")") ? apply([], Tuple.make) : this.tuple();
      this.expect(")");
      return value;
    }
    if (this.skip("[")) {
      const items = this.#items("]", () => this.expression());
      return apply(items, (values) => values);
    }
    if (!this.is("{")) throw this.error("a value is missing");
    this.at++;
    const entries = this.#items("}", () => {
      const key = this.expression();
      this.expect(":");
      return [key, this.expression()];
    }).flat();
    return apply(entries, dictOf);
  }

  #items<T>(close: string, item: () => T): T[] {
    const items: T[] = [];
    while (!this.skip(close)) {
      items.push(item());
      if (!this.is(close)) this.expect(",");
    }
    return items;
  }
}

const NO_ARGUMENTS: Arguments = { operands: [], names: [] };

function both(kind: "and" | "or", left: Expression, right: Expression): Expression {
  return { kind, left, right, calls: left.calls || right.calls };
}

function argsOf(values: readonly Value[], names: readonly string[], work: Work): Args {
  if (names.every((name) => name === "")) return new Args(values);
  const list: Value[] = [];
  const named = new Map<string, Value>();
  for (const [at, value] of values.entries()) {
    const name = names[at];
    if (name === "") list.push(value);
    else if (name === "*") list.push(...iterate(value, work));
    else if (name !== "**") named.set(name, value);
    else if (value instanceof Map) { for (const [key, item] of value) named.set(String(key), item); }
    else throw new Error("the argument after ** must be a dict");
  }
  return new Args(list, named);
}

function dictOf(values: Value[], _work: Work): Map<Value, Value> {
  const dict = new Map<Value, Value>();
  for (let at = 0; at < values.length; at += 2) dict.set(key(values[at]), values[at + 1]);
  return dict;
}
