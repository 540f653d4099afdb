/** A parser of the part of WGSL in `syntax.ts`. It trusts the text to be valid: Dawn and naga have looked at it. */
import type {
  Block,
  Expression,
  FunctionText,
  Module,
  Parameter,
  Scalar,
  Statement,
  Type,
  Variable,
} from "./syntax.ts";

const TOKEN =
  /\/\/[^\n]*|\/\*[\s\S]*?\*\/|\s+|(0[xX][0-9a-fA-F]+[ui]?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fhui]?)|([A-Za-z_]\w*)|(<<=|>>=|\+\+|--|&&|\|\||<<|>>|<=|>=|==|!=|->|[-+*\/%&|^]=|[-+*\/%&|^~!<>=.,;:(){}[\]@])/y;

const SCALARS = ["f32", "f16", "u32", "i32", "bool"];

/** How strongly binary operators bind. */
const STRENGTH: readonly (readonly string[])[] = [
  ["||"],
  ["&&"],
  ["|"],
  ["^"],
  ["&"],
  ["==", "!="],
  ["<", ">", "<=", ">="],
  ["<<", ">>"],
  ["+", "-"],
  ["*", "/", "%"],
];

/** Throws SyntaxError for what is not in the part. */
export function parse(text: string): Module {
  return new Parser(text).module();
}

class Parser {
  readonly #tokens: string[] = [];
  #at = 0;
  readonly #variables = new Map<string, Variable>();
  readonly #functions = new Map<string, FunctionText>();
  readonly #structs = new Map<string, ReadonlyMap<string, Type>>();
  readonly #constants = new Map<string, Expression>();
  readonly #aliases = new Map<string, Type>();

  constructor(text: string) {
    TOKEN.lastIndex = 0;
    for (let at = 0; at < text.length;) {
      const match = TOKEN.exec(text);
      if (!match) throw new SyntaxError(`Cannot read WGSL at "${text.slice(at, at + 30)}"`);
      const token = match[1] ?? match[2] ?? match[3];
      if (token !== undefined) this.#tokens.push(token);
      at = TOKEN.lastIndex;
    }
  }

  module(): Module {
    this.#declareTypes();
    while (this.#at < this.#tokens.length) this.#declaration();
    return {
      variables: this.#variables,
      functions: this.#functions,
      structs: this.#structs,
      constants: this.#constants,
    };
  }

  /** Aliases and the names of structures, which may be used before they are declared. */
  #declareTypes(): void {
    for (const [i, token] of this.#tokens.entries()) {
      if (token === "struct") this.#structs.set(this.#tokens[i + 1], new Map());
      if (token !== "alias") continue;
      this.#at = i + 3;
      this.#aliases.set(this.#tokens[i + 1], this.#type());
    }
    this.#at = 0;
  }

  #declaration(): void {
    const attributes = this.#attributes();
    const word = this.#next();
    if (word === ";") return;
    if (word === "enable" || word === "requires" || word === "alias") return this.#skipTo(";");
    if (word === "struct") return this.#struct();
    if (word === "const" || word === "override") return this.#constant();
    if (word === "var") return this.#variable(attributes);
    if (word === "fn") return this.#function(attributes);
    throw new SyntaxError(`Cannot read WGSL from "${word}" on`);
  }

  #struct(): void {
    const name = this.#next();
    const fields = new Map<string, Type>();
    this.#expect("{");
    while (!this.#accept("}")) {
      const field = this.#next();
      this.#expect(":");
      fields.set(field, this.#type());
      this.#accept(",");
    }
    this.#structs.set(name, fields);
  }

  #constant(): void {
    const name = this.#next();
    if (this.#accept(":")) this.#type();
    this.#expect("=");
    this.#constants.set(name, this.#expression());
    this.#expect(";");
  }

  #variable(attributes: ReadonlyMap<string, Expression>): void {
    let space = "private";
    if (this.#accept("<")) {
      space = this.#next();
      while (!this.#accept(">")) this.#next();
    }
    const name = this.#next();
    this.#expect(":");
    const type = this.#type();
    if (this.#accept("=")) this.#expression();
    this.#expect(";");
    const binding = attributes.get("binding");
    this.#variables.set(name, {
      name,
      type,
      space: space as Variable["space"],
      binding: binding?.kind === "literal" ? binding.value : undefined,
    });
  }

  #function(attributes: ReadonlyMap<string, Expression>): void {
    const name = this.#next();
    const parameters: Parameter[] = [];
    this.#expect("(");
    while (!this.#accept(")")) {
      const builtin = this.#attributes().get("builtin");
      const parameter = this.#next();
      this.#expect(":");
      const type = this.#type();
      parameters.push({
        name: parameter,
        type,
        builtin: builtin?.kind === "name" ? builtin.name : undefined,
      });
      this.#accept(",");
    }
    const returns = this.#accept("->") ? this.#type() : undefined;
    const lanes = attributes.get("workgroup_size");
    this.#functions.set(name, { name, parameters, returns, lanes, body: this.#block() });
  }

  /** By name, with their first argument. */
  #attributes(): Map<string, Expression> {
    const found = new Map<string, Expression>();
    while (this.#accept("@")) {
      const name = this.#next();
      let first: Expression = { kind: "literal", value: 0, float: false };
      if (this.#accept("(")) {
        first = this.#expression();
        while (!this.#accept(")")) this.#next();
      }
      found.set(name, first);
    }
    return found;
  }

  #type(): Type {
    const name = this.#next();
    if (SCALARS.includes(name)) return { kind: "scalar", of: name as Scalar };
    const vector = /^vec([234])$/.exec(name);
    if (vector) {
      this.#expect("<");
      const of = this.#next() as Scalar;
      this.#expect(">");
      return { kind: "vector", of, size: Number(vector[1]) };
    }
    if (name === "array" || name === "atomic") {
      this.#expect("<");
      const of = this.#type();
      const length = this.#accept(",") ? this.#binary(STRENGTH.length - 2) : undefined;
      this.#expect(">");
      return name === "array" ? { kind: "array", of, length } : { kind: "atomic", of };
    }
    return this.#aliases.get(name) ?? { kind: "named", name };
  }

  #block(): Block {
    const statements: Statement[] = [];
    this.#expect("{");
    while (!this.#accept("}")) {
      if (this.#accept(";")) continue;
      statements.push(this.#statement());
    }
    return statements;
  }

  #statement(): Statement {
    switch (this.#peek()) {
      case "{":
        return { kind: "block", body: this.#block() };
      case "if":
        return this.#if();
      case "for":
        return this.#for();
      case "while": {
        this.#next();
        const test = this.#expression();
        return { kind: "for", test, body: this.#block() };
      }
      case "return": {
        this.#next();
        const value = this.#peek() === ";" ? undefined : this.#expression();
        this.#expect(";");
        return { kind: "return", value };
      }
      case "break":
      case "continue": {
        const kind = this.#next() as "break" | "continue";
        this.#expect(";");
        return { kind };
      }
    }
    const statement = this.#simple();
    this.#expect(";");
    return statement;
  }

  #if(): Statement {
    this.#expect("if");
    const test = this.#expression();
    const then = this.#block();
    let otherwise: Block = [];
    if (this.#accept("else")) otherwise = this.#peek() === "if" ? [this.#if()] : this.#block();
    return { kind: "if", test, then, otherwise };
  }

  #for(): Statement {
    this.#expect("for");
    this.#expect("(");
    const first = this.#peek() === ";" ? undefined : this.#simple();
    this.#expect(";");
    const test = this.#expression();
    this.#expect(";");
    const next = this.#peek() === ")" ? undefined : this.#simple();
    this.#expect(")");
    return { kind: "for", first, test, next, body: this.#block() };
  }

  /** A declaration, an assignment or a call. */
  #simple(): Statement {
    const word = this.#peek();
    if (word === "let" || word === "var" || word === "const") {
      this.#next();
      const name = this.#next();
      const type = this.#accept(":") ? this.#type() : undefined;
      const value = this.#accept("=") ? this.#expression() : undefined;
      return { kind: "let", name, type, value };
    }
    const to = this.#unary();
    const op = this.#peek();
    if (op === "++" || op === "--") {
      this.#next();
      return { kind: "assign", to, op: op[0], value: { kind: "literal", value: 1, float: false } };
    }
    if (op.endsWith("=")) {
      this.#next();
      return { kind: "assign", to, op: op.slice(0, -1), value: this.#expression() };
    }
    return { kind: "call", call: to };
  }

  #expression(): Expression {
    return this.#binary(0);
  }

  #binary(level: number): Expression {
    if (level === STRENGTH.length) return this.#unary();
    let left = this.#binary(level + 1);
    while (STRENGTH[level].includes(this.#peek())) {
      const op = this.#next();
      left = { kind: "binary", op, left, right: this.#binary(level + 1) };
    }
    return left;
  }

  #unary(): Expression {
    const op = this.#peek();
    if (op === "-" || op === "!" || op === "~" || op === "&") {
      this.#next();
      return { kind: "unary", op, of: this.#unary() };
    }
    let of = this.#primary();
    for (;;) {
      if (this.#accept("[")) {
        of = { kind: "index", of, at: this.#expression() };
        this.#expect("]");
      } else if (this.#accept(".")) of = { kind: "member", of, name: this.#next() };
      else return of;
    }
  }

  #primary(): Expression {
    if (this.#accept("(")) {
      const inner = this.#expression();
      this.#expect(")");
      return inner;
    }
    const word = this.#peek();
    if (/^[\d.]/.test(word)) return this.#literal();
    if (word === "bitcast") {
      this.#next();
      this.#expect("<");
      const type = this.#type();
      this.#expect(">");
      return { kind: "bitcast", type, of: this.#args()[0] };
    }
    if (word === "true" || word === "false") {
      this.#next();
      return { kind: "literal", value: Number(word === "true"), of: "bool", float: false };
    }
    if (/^vec[234]$/.test(word) && this.#tokens[this.#at + 1] === "(") {
      this.#next();
      return { kind: "call", name: word, args: this.#args() };
    }
    if (SCALARS.includes(word) || /^(vec[234]|array)$/.test(word) || this.#aliases.has(word)) {
      const type = this.#type();
      return { kind: "make", type, args: this.#args() };
    }
    this.#next();
    if (this.#peek() !== "(") return { kind: "name", name: word };
    const args = this.#args();
    if (this.#structs.has(word)) return { kind: "make", type: { kind: "named", name: word }, args };
    return { kind: "call", name: word, args };
  }

  #literal(): Expression {
    const text = this.#next();
    const hex = /^0x/i.test(text);
    const suffix = hex ? /[ui]$/.exec(text)?.[0] : /[fhui]$/.exec(text)?.[0];
    const of = suffix === undefined
      ? undefined
      : ({ f: "f32", h: "f16", u: "u32", i: "i32" } as const)[suffix as "f" | "h" | "u" | "i"];
    const value = Number(suffix ? text.slice(0, -1) : text);
    return { kind: "literal", value, of, float: !hex && /[.eEfh]/.test(text) };
  }

  #args(): Expression[] {
    const args: Expression[] = [];
    this.#expect("(");
    while (!this.#accept(")")) {
      args.push(this.#expression());
      this.#accept(",");
    }
    return args;
  }

  #peek(): string {
    return this.#tokens[this.#at] ?? "";
  }

  #next(): string {
    const token = this.#tokens[this.#at++];
    if (token === undefined) throw new SyntaxError("The WGSL ends too early");
    return token;
  }

  #accept(token: string): boolean {
    if (this.#peek() !== token) return this.#splits(token);
    this.#at++;
    return true;
  }

  /** Two templates that end together, as in `array<vec4<f32>>`, are one token `>>`. */
  #splits(token: string): boolean {
    if (token !== ">" || this.#peek() !== ">>") return false;
    this.#tokens[this.#at] = ">";
    return true;
  }

  #expect(token: string): void {
    if (!this.#accept(token)) {
      const around = this.#tokens.slice(Math.max(0, this.#at - 8), this.#at + 8).join(" ");
      throw new SyntaxError(`Cannot read WGSL: expected "${token}" in "${around}"`);
    }
  }

  #skipTo(token: string): void {
    while (this.#next() !== token);
  }
}
