/**
 * What a dispatch loads and computes, counted over its text: each lane's statements are walked through with what is known
 * of its uniforms and rows. A loop whose turns do not differ is walked once and counted as often as it turns.
 */
import { parse } from "./parse.ts";
import type { Block, Expression, FunctionText, Module, Statement, Type, Variable } from "./syntax.ts";
import {
  binary,
  BY_LANE,
  BY_TURN,
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

/** A kernel's text, its dispatch, and what is known of what it reads. */
export interface Dispatched {
  readonly code: string;
  readonly entryPoint: string;
  readonly constants: Readonly<Record<string, number>>;
  readonly workgroups: readonly [number, number, number];
  /** Words of bindings, of those that control flow depends on. */
  readonly words: ReadonlyMap<number, Uint32Array>;
}

const modules = new Map<string, Module>();

function moduleOf(code: string): Module {
  let known = modules.get(code);
  if (!known) modules.set(code, known = parse(code));
  return known;
}

/**
 * Counts a dispatch. Of a grid's axis longer than `most` workgroups, the first, the last and some between stand for all, and some
 * lanes for those of a workgroup: a sum that is exact where they do the same, or grow evenly. `Infinity` walks through all.
 */
export function countDispatch(of: Dispatched, most = 3): Count {
  const module = moduleOf(of.code);
  const count = noCount();
  const axes = of.workgroups.map((size) => samples(size, most));
  for (const [z, timesZ] of axes[2]) {
    for (const [y, timesY] of axes[1]) {
      for (const [x, timesX] of axes[0]) {
        countWorkgroup(module, of, [x, y, z], timesX * timesY * timesZ, count, most);
      }
    }
  }
  return count;
}

export function noCount(): Count {
  return { storage: new Map(), shared: 0, floats: 0, integers: 0, barriers: 0 };
}

/** Places along an axis, and how many each stands for: the first and last for themselves; or the middle for all. */
function samples(size: number, most: number): [number, number][] {
  if (size <= most) return Array.from({ length: size }, (_, i) => [i, 1]);
  if (most === 1) return [[size >> 1, size]];
  const between = most - 2;
  const middle = Array.from({ length: between }, (_, i): [number, number] => {
    return [1 + Math.round((i + 0.5) / between * (size - 2) - 0.5), (size - 2) / between];
  });
  return [[0, 1], ...middle, [size - 1, 1]];
}

/** Strata of lanes from which one is walked, where not all are: each at another place of its stratum. */
const STRATA = 32;

function laneSamples(lanes: number, most: number): [number, number][] {
  if (most === Infinity || lanes <= STRATA) return Array.from({ length: lanes }, (_, i) => [i, 1]);
  const stratum = lanes / STRATA;
  return Array.from(
    { length: STRATA },
    (_, i) => [Math.floor(i * stratum) + i % Math.floor(stratum), stratum],
  );
}

function countWorkgroup(
  module: Module,
  of: Dispatched,
  group: readonly [number, number, number],
  times: number,
  count: Count,
  most: number,
): void {
  const entry = module.functions.get(of.entryPoint)!;
  const lanes = numberOf(new Walk(module, of, group, count, 0).value(entry.lanes!))!;
  // All lanes as one, where they take the same way; else each by itself.
  const trial = noCount();
  try {
    new Walk(module, of, group, trial, times * lanes, lanes).lane(entry, undefined);
    addCount(count, trial);
    return;
  } catch (error) {
    if (!(error instanceof Differs)) throw error;
  }
  for (const [lane, stands] of laneSamples(lanes, most)) {
    new Walk(module, of, group, count, times * stands, lanes).lane(entry, lane);
  }
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

/** What was walked through as one takes different ways. */
class Differs extends Error {}

type Way = "on" | "return" | "break" | "continue";
type Scope = Map<string, Value>;

const CONTROL = ["return", "break", "continue"];
/** Functions that give one component, of the type of what they are given. */
const REDUCES = new Set(["dot"]);
const TRUTHS = new Set(["all", "any"]);

class Walk {
  #scopes: Scope[] = [new Map()];
  #returned: Value | undefined;
  /** Statements that lanes of a workgroup do not all do. */
  #apart = 0;
  /** Loops, or lanes, that are counted as one. */
  #merged = 0;

  constructor(
    private readonly module: Module,
    private readonly of: Dispatched,
    private readonly group: readonly number[],
    private count: Count,
    private times: number,
    private readonly lanes = 1,
  ) {}

  /** One lane; or all as one. Throws Differs where they are not. */
  lane(entry: FunctionText, lane: number | undefined): void {
    if (lane === undefined) this.#merged++;
    const flags = BY_LANE | (lane === undefined ? BY_TURN : 0);
    for (const { name, builtin, type } of entry.parameters) {
      const triple = (data: readonly number[]): Value => ({ type: vector("u32", 3), data, flags: 0 });
      if (builtin === "workgroup_id") this.#scopes[0].set(name, triple(this.group));
      else if (builtin === "num_workgroups") this.#scopes[0].set(name, triple(this.of.workgroups));
      else if (builtin === "local_invocation_index") {
        this.#scopes[0].set(name, lane === undefined ? unknown(type, flags) : word(lane, flags));
      } else throw new TypeError(`Cannot count with @builtin(${builtin})`);
    }
    this.#block(entry.body);
  }

  #block(block: Block): Way {
    this.#scopes.push(new Map());
    try {
      for (const statement of block) {
        const way = this.#statement(statement);
        if (way !== "on") return way;
      }
      return "on";
    } finally {
      this.#scopes.pop();
    }
  }

  #statement(s: Statement): Way {
    switch (s.kind) {
      case "let": {
        const value = s.value ? this.value(s.value) : unknown(s.type!);
        this.#scopes.at(-1)!.set(
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
    this.#apart += apart;
    try {
      if (known !== undefined) return this.#block(known ? then : otherwise);
      if (value.flags & BY_TURN) throw new Differs();
      // Data decides: at most both.
      this.#forget([...then, ...otherwise]);
      this.#block(then);
      this.#block(otherwise);
      this.#forget([...then, ...otherwise]);
      return "on";
    } finally {
      this.#apart -= apart;
    }
  }

  #for(s: Statement & { kind: "for" }): Way {
    this.#scopes.push(new Map());
    try {
      if (s.first) this.#statement(s.first);
      return this.#merge(s) ?? this.#turns(s);
    } finally {
      this.#scopes.pop();
    }
  }

  /** Turn after turn. */
  #turns({ test, next, body }: Statement & { kind: "for" }): Way {
    for (;;) {
      const value = this.value(test);
      const known = numberOf(value);
      if (known === 0) return "on";
      if (known === undefined && value.flags & BY_TURN) throw new Differs();
      if (known === undefined) this.#forget(body);
      const apart = value.flags & BY_LANE ? 1 : 0;
      this.#apart += apart;
      const way = this.#block(body);
      this.#apart -= apart;
      if (way === "return") return way;
      if (way === "break") return "on";
      if (next) this.#statement(next);
      if (known === undefined) {
        this.#forget(body);
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
    const start = this.#find(counter);
    const turns = this.#quietly(() => this.#countTurns(s));
    if (turns === undefined) return undefined;
    if (turns.count === 0) {
      this.#change(counter, start);
      this.value(test);
      return "on";
    }
    const saved = [...changed].flatMap((name): [string, Value][] => {
      const value = this.#lookUp(name);
      return value ? [[name, value]] : [];
    });
    const { count, times } = this;
    const depth = this.#scopes.length;
    const apart = this.#apart;
    this.count = noCount();
    this.times *= turns.count;
    this.#merged++;
    try {
      this.#change(counter, unknown(start.type, turns.flags | BY_TURN));
      for (const [name, value] of saved) this.#change(name, unknown(value.type, value.flags | BY_TURN));
      if (turns.flags & BY_LANE) this.#apart++;
      this.value(test);
      this.#block(body);
      this.#statement(next);
      const merged = this.count;
      this.count = count;
      addCount(count, merged);
      this.#change(counter, turns.last);
      const stays = this.#merged > 1 ? BY_TURN : 0;
      for (const [name, value] of saved) {
        this.#change(name, unknown(value.type, this.#find(name).flags & BY_LANE | stays));
      }
      return "on";
    } catch (error) {
      if (!(error instanceof Differs)) throw error;
      this.count = count;
      this.#scopes.length = depth;
      this.#change(counter, start);
      for (const [name, value] of saved) this.#change(name, value);
      return undefined;
    } finally {
      this.times = times;
      this.#apart = apart;
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
      if (known === 0) return { count, flags, last: this.#find(counter) };
      this.#statement(next!);
    }
  }

  #quietly<T>(of: () => T): T {
    const { times } = this;
    this.times = 0;
    try {
      return of();
    } finally {
      this.times = times;
    }
  }

  /** What a block may assign is no longer known. */
  #forget(block: Block): void {
    for (const name of assigned(block)) {
      const value = this.#lookUp(name);
      if (value) this.#change(name, unknown(value.type, value.flags));
    }
  }

  #assign(to: Expression, op: string, from: Expression): void {
    const value = this.value(from);
    if (to.kind === "name" && this.#lookUp(to.name)) {
      const old = this.#find(to.name);
      const result = op ? this.#binary(op, old, value) : { ...value, type: old.type };
      return this.#change(to.name, settled(result));
    }
    const root = rootOf(to);
    const variable = this.module.variables.get(root);
    if (!variable || this.#lookUp(root)) {
      // A part of a local vector or array: the whole is not followed further.
      this.#indices(to);
      const old = this.#find(root);
      return this.#change(root, unknown(old.type, old.flags | value.flags));
    }
    const { type } = this.#access(to, variable, op ? "both" : "store");
    if (op) this.#binary(op, unknown(type), value);
  }

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
        return this.#binary(e.op, this.value(e.left), this.value(e.right));
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
    const local = this.#lookUp(name);
    if (local) return local;
    const given = this.of.constants[name];
    if (given !== undefined) return word(given);
    const constant = this.module.constants.get(name);
    if (constant) return this.#quietly(() => this.value(constant));
    const variable = this.module.variables.get(name);
    if (!variable) throw new TypeError(`Cannot count: "${name}" is not declared`);
    if (variable.space === "uniform" && variable.type.kind !== "named") {
      const words = this.#words(variable);
      return { type: variable.type, data: words && [...words.subarray(0, 4)], flags: 0 };
    }
    return this.#access({ kind: "name", name }, variable, "load");
  }

  #unary(op: string, of: Expression): Value {
    if (op === "&") return unknown(scalar("u32"));
    const value = this.value(of);
    this.#operations(value.type, 1);
    const known = numberOf(value);
    if (known === undefined) return unknown(value.type, value.flags);
    const result = op === "!" ? Number(!known) : op === "~" ? ~known : -known;
    const unsigned = scalarOf(value.type) === "u32";
    return { ...value, data: unsigned ? result >>> 0 : result };
  }

  #binary(op: string, a: Value, b: Value): Value {
    const result = binary(op, a, b);
    const operands = (a.abstract ? b : a).type;
    this.#operations(withScalar(result.type, scalarOf(operands)), 1);
    return result;
  }

  /** An element, member or component: of a variable in memory, or of a value. */
  #part(e: Expression & { kind: "index" | "member" }): Value {
    const root = rootOf(e);
    const variable = this.module.variables.get(root);
    if (variable && !this.#lookUp(root)) return this.#access(e, variable, "load");
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
  #access(e: Expression, variable: Variable, how: "load" | "store" | "both"): Value {
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
    this.#counted(variable, type, how, flags);
    return this.#known(variable, path, type, element, flags);
  }

  #counted(variable: Variable, type: Type, how: "load" | "store" | "both", flags: number): void {
    const bytes = this.#bytes(type);
    if (variable.space === "workgroup") {
      this.count.shared += this.times * bytes * (how === "both" ? 2 : 1);
      return;
    }
    const traffic = trafficOf(this.count, variable.name);
    traffic.accesses += this.times;
    // What all lanes take from one place comes once.
    const lanes = this.#apart === 0 && !(flags & BY_LANE) ? this.lanes : 1;
    if (how !== "store") traffic.loaded += this.times * bytes / lanes;
    if (how !== "load") traffic.stored += this.times * bytes;
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
      this.count.barriers += this.times / this.lanes;
      return unknown(scalar("u32"));
    }
    if (name.startsWith("atomic")) return this.#atomic(args);
    if (name === "workgroupUniformLoad") {
      this.count.barriers += 2 * this.times / this.lanes;
      return this.value((args[0] as Expression & { kind: "unary" }).of);
    }
    return this.#builtin(name, args.map((arg) => this.value(arg)));
  }

  #function({ parameters, body }: FunctionText, args: readonly Value[]): Value {
    const outer = this.#scopes;
    this.#scopes = [
      new Map(parameters.map(({ name, type }, i) => [name, { ...args[i], type, abstract: false }])),
    ];
    this.#returned = undefined;
    try {
      this.#block(body);
      return this.#returned ?? unknown(scalar("u32"));
    } finally {
      this.#scopes = outer;
      this.#returned = undefined;
    }
  }

  #atomic(args: readonly Expression[]): Value {
    const [target, ...rest] = args;
    for (const arg of rest) this.value(arg);
    const place = (target as Expression & { kind: "unary" }).of;
    const variable = this.module.variables.get(rootOf(place))!;
    return this.#access(place, variable, rest.length > 0 ? "both" : "load");
  }

  #builtin(name: string, args: readonly Value[]): Value {
    const flags = args.reduce((all, { flags }) => all | flags, 0);
    const first = args.find(({ abstract }) => !abstract) ?? args[0];
    const known = args.map(numberOf);
    const vec = /^vec([234])$/.exec(name);
    if (vec) return make(vector(scalarOf(first.type), Number(vec[1])), args);
    if (/^(un)?pack/.test(name)) return this.#packing(name, flags);
    if (REDUCES.has(name)) {
      this.#operations(first.type, 2);
      return unknown(scalar(scalarOf(first.type)), flags);
    }
    if (name.startsWith("dot4")) {
      this.#operations(vector(name.startsWith("dot4I") ? "i32" : "u32", 4), 2);
      return unknown(scalar(name.startsWith("dot4I") ? "i32" : "u32"), flags);
    }
    if (TRUTHS.has(name)) return unknown(scalar("bool"), flags);
    const widest = args.find(({ type }) => type.kind === "vector") ?? first;
    const type = withScalar(widest.type, scalarOf(first.type));
    this.#operations(type, name === "fma" ? 2 : 1);
    if (type.kind === "vector" || isFloat(scalarOf(type))) return unknown(type, flags);
    if (name === "select" && known[2] !== undefined) return { ...args[known[2] ? 1 : 0], type, flags };
    if (known.includes(undefined)) return unknown(type, flags);
    const numbers = known as number[];
    if (name === "min") return { type, data: Math.min(...numbers), flags };
    if (name === "max") return { type, data: Math.max(...numbers), flags };
    return unknown(type, flags);
  }

  #packing(name: string, flags: number): Value {
    this.count.integers += this.times;
    if (name.startsWith("pack")) return unknown(scalar("u32"), flags);
    if (name === "unpack2x16float") return unknown(vector("f32", 2), flags);
    return unknown(vector(name.includes("I8") ? "i32" : name.includes("U8") ? "u32" : "f32", 4), flags);
  }

  #operations(type: Type, each: number): void {
    const operations = this.times * each * widthOf(type);
    if (isFloat(scalarOf(type))) this.count.floats += operations;
    else this.count.integers += operations;
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
        return numberOf(this.#quietly(() => this.value(type.length!)))! * this.#bytes(type.of);
      case "named":
        return [...this.module.structs.get(type.name)!.values()].reduce((sum, t) => sum + this.#bytes(t), 0);
    }
  }

  /** Of the indices on the way to a place, which are computed too. */
  #indices(e: Expression): void {
    if (e.kind === "index") this.value(e.at);
    if (e.kind === "index" || e.kind === "member") this.#indices(e.of);
  }

  #lookUp(name: string): Value | undefined {
    for (let i = this.#scopes.length - 1; i >= 0; i--) {
      const value = this.#scopes[i].get(name);
      if (value) return value;
    }
    return undefined;
  }

  #find(name: string): Value {
    const value = this.#lookUp(name);
    if (!value) throw new TypeError(`Cannot count: "${name}" is not declared`);
    return value;
  }

  #change(name: string, value: Value): void {
    for (let i = this.#scopes.length - 1; i >= 0; i--) {
      if (!this.#scopes[i].has(name)) continue;
      this.#scopes[i].set(name, value);
      return;
    }
  }
}

/** A literal that becomes a variable has a type of its own. */
function settled(value: Value): Value {
  return value.abstract ? { ...value, abstract: false } : value;
}

function elementOf(type: Type): Type {
  if (type.kind === "array") return type.of;
  return scalar(scalarOf(type));
}

function rootOf(e: Expression): string {
  if (e.kind === "name") return e.name;
  if (e.kind === "index" || e.kind === "member") return rootOf(e.of);
  return "";
}

const assignedOf = new WeakMap<Block, ReadonlySet<string>>();

/** Variables that a block assigns, in whole or in part. */
function assigned(block: Block): ReadonlySet<string> {
  const known = assignedOf.get(block);
  if (known) return known;
  const found = new Set<string>();
  for (const s of block) {
    if (s.kind === "assign") found.add(rootOf(s.to));
    for (const inner of blocksOf(s)) for (const name of assigned(inner)) found.add(name);
    if (s.kind === "for" && s.next?.kind === "assign") found.add(rootOf(s.next.to));
  }
  assignedOf.set(block, found);
  return found;
}

function blocksOf(s: Statement): readonly Block[] {
  if (s.kind === "if") return [s.then, s.otherwise];
  return s.kind === "for" || s.kind === "block" ? [s.body] : [];
}

function has(block: Block, kinds: readonly string[]): boolean {
  return block.some((s) => kinds.includes(s.kind) || blocksOf(s).some((inner) => has(inner, kinds)));
}

/** Names that an expression reads. */
function names(e: Expression): string[] {
  switch (e.kind) {
    case "name":
      return [e.name];
    case "unary":
    case "bitcast":
      return names(e.of);
    case "binary":
      return [...names(e.left), ...names(e.right)];
    case "index":
      return [...names(e.of), ...names(e.at)];
    case "member":
      return names(e.of);
    case "call":
    case "make":
      return e.args.flatMap(names);
    case "literal":
      return [];
  }
}
