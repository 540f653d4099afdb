/** Values of expressions, of which what they load and compute is counted. */
import type { Scopes } from "./scopes.ts";
import type { Block, Expression, FunctionText, Module, Type, Variable } from "./syntax.ts";
import type { Access, Tally } from "./tally.ts";
import { rootOf } from "./text.ts";
import {
  binary,
  BY_LANE,
  isFloat,
  make,
  numberOf,
  scalar,
  scalarOf,
  unknown,
  type Value,
  vector,
  widthOf,
  withScalar,
  word,
} from "./values.ts";

/** A kernel's text, its dispatch, and what is known of what it reads. */
export interface Dispatched {
  readonly code: string;
  readonly entryPoint: string;
  readonly constants: Readonly<Record<string, number>>;
  readonly workgroups: readonly [number, number, number];
  /** Words of bindings, of those that control flow depends on. */
  readonly words: ReadonlyMap<number, Uint32Array>;
}

/** Functions that give one component, of the type of what they are given. */
const REDUCES = new Set(["dot"]);
const TRUTHS = new Set(["all", "any"]);

export abstract class Expressions {
  constructor(
    protected readonly module: Module,
    protected readonly of: Dispatched,
    protected readonly scopes: Scopes,
    protected readonly tally: Tally,
  ) {}

  /** Walks through a function's body; what it returns. */
  protected abstract run(body: Block): Value | undefined;

  value(e: Expression): Value {
    switch (e.kind) {
      case "literal":
        return {
          type: scalar(e.of ?? (e.float ? "f32" : "i32")),
          data: e.float ? undefined : e.value,
          flags: 0,
          abstract: e.of === undefined,
        };
      case "name":
        return this.#name(e.name);
      case "unary":
        return this.#unary(e.op, e.of);
      case "binary":
        return this.operation(e.op, this.value(e.left), this.value(e.right));
      case "index":
      case "member":
        return this.#part(e);
      case "make":
        return make(e.type, e.args.map((arg) => this.value(arg)));
      case "bitcast": {
        const { flags, data } = this.value(e.of);
        const integer = !isFloat(scalarOf(e.type));
        return { type: e.type, flags, data: integer && typeof data === "number" ? data : undefined };
      }
      case "call":
        return this.#call(e.name, e.args);
    }
  }

  #name(name: string): Value {
    const local = this.scopes.lookUp(name);
    if (local) return local;
    const given = this.of.constants[name];
    if (given !== undefined) return word(given);
    const constant = this.module.constants.get(name);
    if (constant) return this.tally.quietly(() => this.value(constant));
    const variable = this.module.variables.get(name);
    if (!variable) throw new TypeError(`Cannot count: "${name}" is not declared`);
    if (variable.space === "uniform" && variable.type.kind !== "named") {
      const words = this.#words(variable);
      return { type: variable.type, data: words && [...words.subarray(0, 4)], flags: 0 };
    }
    return this.access({ kind: "name", name }, variable, "load");
  }

  #unary(op: string, of: Expression): Value {
    if (op === "&") return unknown(scalar("u32"));
    const value = this.value(of);
    this.tally.operations(value.type, 1);
    const known = numberOf(value);
    if (known === undefined) return unknown(value.type, value.flags);
    const result = op === "!" ? Number(!known) : op === "~" ? ~known : -known;
    const unsigned = scalarOf(value.type) === "u32";
    return { ...value, data: unsigned ? result >>> 0 : result };
  }

  protected operation(op: string, a: Value, b: Value): Value {
    const result = binary(op, a, b);
    const operands = (a.abstract ? b : a).type;
    this.tally.operations(withScalar(result.type, scalarOf(operands)), 1);
    return result;
  }

  /** An element, member or component: of a variable in memory, or of a value. */
  #part(e: Expression & { kind: "index" | "member" }): Value {
    const root = rootOf(e);
    const variable = this.module.variables.get(root);
    if (variable && !this.scopes.lookUp(root)) return this.access(e, variable, "load");
    const whole = this.value(e.of);
    if (e.kind === "index") {
      const at = this.value(e.at);
      const type = elementOf(whole.type);
      const i = numberOf(at);
      const flags = whole.flags | at.flags;
      if (i === undefined || !Array.isArray(whole.data)) return unknown(type, flags);
      const found = whole.data[i];
      if (found === undefined) return unknown(type, flags);
      return typeof found === "number" ? { type, data: found, flags } : { ...found, type };
    }
    return this.#member(whole, e.name);
  }

  #member(whole: Value, name: string): Value {
    if (whole.type.kind === "named") {
      const fields = this.module.structs.get(whole.type.name)!;
      const known = Array.isArray(whole.data)
        ? whole.data[[...fields.keys()].indexOf(name)] as Value
        : undefined;
      const type = fields.get(name)!;
      return known ? { ...known, type, abstract: false } : unknown(type, whole.flags);
    }
    const of = scalarOf(whole.type);
    const type = name.length === 1 ? scalar(of) : vector(of, name.length);
    if (!Array.isArray(whole.data)) return unknown(type, whole.flags);
    const data = [...name].map((c) => (whole.data as number[])["xyzw".indexOf(c)]);
    return { type, data: name.length === 1 ? data[0] : data, flags: whole.flags };
  }

  /** Reads or writes what `e` names of a variable in memory, and counts it. */
  protected access(e: Expression, variable: Variable, how: Access): Value {
    const path: (Expression & { kind: "index" | "member" })[] = [];
    for (let at = e; at.kind === "index" || at.kind === "member"; at = at.of) path.unshift(at);
    let { type } = variable;
    let flags = 0;
    let element: number | undefined;
    const places: (number | undefined)[] = [];
    for (const step of path) {
      if (step.kind === "member") {
        type = this.#member(unknown(type), step.name).type;
        places.push(undefined);
        continue;
      }
      const at = this.value(step.at);
      flags |= at.flags;
      if (step === path[0]) element = numberOf(at);
      type = elementOf(type);
    }
    if (variable.space === "uniform") return this.#uniform(variable, path, type);
    if (variable.space === "private") return unknown(type, flags);
    this.tally.access(variable, this.#bytes(type), how, flags);
    return this.#known(variable, path, type, element, flags);
  }

  /** What is known of an element of a buffer. */
  #known(
    variable: Variable,
    path: readonly Expression[],
    type: Type,
    element: number | undefined,
    flags: number,
  ): Value {
    const words = variable.space === "storage" ? this.#words(variable) : undefined;
    if (!words || variable.type.kind !== "array") return unknown(type, flags & BY_LANE);
    if (element === undefined) return unknown(type, flags);
    const width = widthOf(variable.type.of);
    const data = [...words.subarray(element * width, (element + 1) * width)];
    if (data.length < width) return unknown(type, flags);
    const whole: Value = { type: variable.type.of, data: width === 1 ? data[0] : data, flags };
    const rest = path[1];
    return rest?.kind === "member" ? this.#member(whole, rest.name) : { ...whole, type };
  }

  #uniform(variable: Variable, path: readonly Expression[], type: Type): Value {
    const words = this.#words(variable);
    const [first] = path;
    if (!words || first.kind !== "member") return unknown(type);
    const fields = variable.type.kind === "named"
      ? [...this.module.structs.get(variable.type.name)!.keys()]
      : ["x", "y", "z", "w"];
    if (isFloat(scalarOf(type))) return unknown(type);
    return { type, data: words[fields.indexOf(first.name)], flags: 0 };
  }

  #words({ binding }: Variable): Uint32Array | undefined {
    return this.of.words.get(binding!);
  }

  #call(name: string, args: readonly Expression[]): Value {
    const text = this.module.functions.get(name);
    if (text) return this.#function(text, args.map((arg) => this.value(arg)));
    if (name.endsWith("Barrier")) {
      this.tally.barriers(1);
      return unknown(scalar("u32"));
    }
    if (name.startsWith("atomic")) return this.#atomic(args);
    if (name === "workgroupUniformLoad") {
      this.tally.barriers(2);
      return this.value((args[0] as Expression & { kind: "unary" }).of);
    }
    return this.#builtin(name, args.map((arg) => this.value(arg)));
  }

  #function({ parameters, body }: FunctionText, args: readonly Value[]): Value {
    const values = parameters.map(({ name, type }, i): [string, Value] => {
      return [name, { ...args[i], type, abstract: false }];
    });
    return this.scopes.apart(new Map(values), () => this.run(body)) ?? unknown(scalar("u32"));
  }

  #atomic(args: readonly Expression[]): Value {
    const [target, ...rest] = args;
    for (const arg of rest) this.value(arg);
    const place = (target as Expression & { kind: "unary" }).of;
    const variable = this.module.variables.get(rootOf(place))!;
    return this.access(place, variable, rest.length > 0 ? "both" : "load");
  }

  #builtin(name: string, args: readonly Value[]): Value {
    const flags = args.reduce((all, { flags }) => all | flags, 0);
    const first = args.find(({ abstract }) => !abstract) ?? args[0];
    const known = args.map(numberOf);
    const vec = /^vec([234])$/.exec(name);
    if (vec) return make(vector(scalarOf(first.type), Number(vec[1])), args);
    if (/^(un)?pack/.test(name)) return this.#packing(name, flags);
    if (REDUCES.has(name)) {
      this.tally.operations(first.type, 2);
      return unknown(scalar(scalarOf(first.type)), flags);
    }
    if (name.startsWith("dot4")) {
      this.tally.operations(vector(name.startsWith("dot4I") ? "i32" : "u32", 4), 2);
      return unknown(scalar(name.startsWith("dot4I") ? "i32" : "u32"), flags);
    }
    if (TRUTHS.has(name)) return unknown(scalar("bool"), flags);
    const widest = args.find(({ type }) => type.kind === "vector") ?? first;
    const type = withScalar(widest.type, scalarOf(first.type));
    this.tally.operations(type, name === "fma" ? 2 : 1);
    if (type.kind === "vector" || isFloat(scalarOf(type))) return unknown(type, flags);
    if (name === "select" && known[2] !== undefined) return { ...args[known[2] ? 1 : 0], type, flags };
    if (known.includes(undefined)) return unknown(type, flags);
    const numbers = known as number[];
    if (name === "min") return { type, data: Math.min(...numbers), flags };
    if (name === "max") return { type, data: Math.max(...numbers), flags };
    return unknown(type, flags);
  }

  #packing(name: string, flags: number): Value {
    this.tally.operations(scalar("u32"), 1);
    if (name.startsWith("pack")) return unknown(scalar("u32"), flags);
    if (name === "unpack2x16float") return unknown(vector("f32", 2), flags);
    return unknown(vector(name.includes("I8") ? "i32" : name.includes("U8") ? "u32" : "f32", 4), flags);
  }

  #bytes(type: Type): number {
    switch (type.kind) {
      case "scalar":
        return type.of === "f16" ? 2 : 4;
      case "vector":
        return type.size * (type.of === "f16" ? 2 : 4);
      case "atomic":
        return 4;
      case "array":
        return numberOf(this.tally.quietly(() => this.value(type.length!)))! * this.#bytes(type.of);
      case "named":
        return [...this.module.structs.get(type.name)!.values()].reduce((sum, t) => sum + this.#bytes(t), 0);
    }
  }

  /** Of the indices on the way to a place, which are computed too. */
  protected indices(e: Expression): void {
    if (e.kind === "index") this.value(e.at);
    if (e.kind === "index" || e.kind === "member") this.indices(e.of);
  }
}

function elementOf(type: Type): Type {
  if (type.kind === "array") return type.of;
  return scalar(scalarOf(type));
}
