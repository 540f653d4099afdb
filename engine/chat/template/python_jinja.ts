import { Interpreter } from "@huggingface/jinja";

/** Python features of Jinja that published templates use and the library lacks. */

/** Limit for the characters of any text, far above the needs of a context of a million tokens. */
export const MAX_TEXT = 1 << 26;

type Evaluate = Interpreter["evaluate"];
type Statement = NonNullable<Parameters<Evaluate>[0]>;
type Environment = Parameters<Evaluate>[1];
type Value = ReturnType<Evaluate>;

/** The library's parsed statements, with the fields that are read here. */
interface Filtered {
  readonly operand: Statement;
  readonly filter: { readonly type: string; readonly value?: unknown };
}
interface Binary {
  readonly left: Statement;
  readonly right: Statement;
  readonly operator: { readonly value: string };
}
interface Call {
  readonly callee: Statement;
  readonly args: readonly Statement[];
}
interface Member {
  readonly object: Statement;
  readonly property: Statement;
  readonly computed: boolean;
}

/** Filters of texts. They treat undefined as an empty text. */
const TEXT_FILTERS: ReadonlySet<unknown> = new Set([
  "trim",
  "lower",
  "upper",
  "title",
  "capitalize",
  "string",
]);

/** Filters that remove items of a list. They treat none as an empty list. */
const LIST_FILTERS: ReadonlySet<unknown> = new Set(["select", "selectattr", "reject", "rejectattr"]);

export class PythonInterpreter extends Interpreter {
  /** Mappings with integer keys, which the library stores as texts. */
  readonly #numbered = new WeakSet<Value>();

  override evaluate(...[statement, environment]: Parameters<Evaluate>): Value {
    switch (statement?.type) {
      case "Given":
        return (statement as unknown as { value: Value }).value;
      // A list instead of a tuple: the library cannot unpack tuples in a loop.
      case "TupleLiteral":
        return super.evaluate(node("ArrayLiteral", { ...statement }), environment);
      case "BinaryExpression":
        return this.#binary(statement as unknown as Binary, statement, environment);
      case "CallExpression":
        return this.#method(statement as unknown as Call, environment) ??
          super.evaluate(statement, environment);
      case "FilterExpression":
        return this.#filtered(statement as unknown as Filtered, statement, environment);
      case "ObjectLiteral":
        return this.#mapping(statement, environment);
      case "MemberExpression":
        return this.#member(statement as unknown as Member, statement, environment);
      default:
        return super.evaluate(statement, environment);
    }
  }

  /** Evaluates `in`, `not in` and `~`, where undefined is in no list and joins text as empty. */
  #binary({ left, right, operator }: Binary, statement: Statement, environment: Environment): Value {
    const isIn = operator.value === "in" || operator.value === "not in";
    if (!isIn && operator.value !== "~") return super.evaluate(statement, environment);
    const [a, b] = [this.evaluate(left, environment), this.evaluate(right, environment)];
    if (!isIn) return this.#text(bounded(asText(a) + asText(b)), environment);
    if (a.type === "UndefinedValue" && b.type === "ArrayValue") {
      const not = (argument: Statement) => node("UnaryExpression", { operator: { value: "not" }, argument });
      const yes = not(given(a));
      return super.evaluate(operator.value === "in" ? not(yes) : yes, environment);
    }
    return super.evaluate(
      node("BinaryExpression", { operator, left: given(a), right: given(b) }),
      environment,
    );
  }

  /** Calls one of the methods below; returns undefined for any other call. */
  #method({ callee, args }: Call, environment: Environment): Value | undefined {
    if (callee.type !== "MemberExpression") return undefined;
    const { object, property, computed } = callee as unknown as Member;
    const name = computed ? undefined : (property as unknown as { value?: unknown }).value;
    if (name !== "format" && name !== "append" && name !== "pop") return undefined;
    const value = this.evaluate(object, environment);
    const values = () => args.map((argument) => this.evaluate(argument, environment));
    if (value.type === "StringValue" && name === "format") {
      return this.#text(formatted(String(value.value), values().map(asText)), environment);
    }
    if (value.type !== "ArrayValue" || name === "format") return undefined;
    const list = value.value as Value[];
    const [argument] = values();
    if (name === "pop") return list.splice(argument ? Number(argument.value) : -1, 1)[0];
    if (!argument) return undefined;
    list.push(argument);
    return super.evaluate(node("Identifier", { value: "none" }), environment);
  }

  #filtered({ operand, filter }: Filtered, statement: Statement, environment: Environment): Value {
    const value = this.evaluate(operand, environment);
    const name = filter.type === "Identifier" ? filter.value : undefined;
    if (name === "string") return this.#text(asText(value), environment);
    if (this.#numbered.has(value) && (name === "dictsort" || name === "items")) {
      return this.#pairs(value, name === "dictsort", environment);
    }
    if ((name === "min" || name === "max") && value.type === "ArrayValue") return extreme(value, name);
    if (value.type === "NullValue" && LIST_FILTERS.has(calledName(filter))) {
      return super.evaluate(node("ArrayLiteral", { value: [] }), environment);
    }
    const isText = value.type === "UndefinedValue" && TEXT_FILTERS.has(name);
    const known = given(isText ? this.#text("", environment) : value);
    return super.evaluate(node("FilterExpression", { ...statement, operand: known }), environment);
  }

  #mapping(statement: Statement, environment: Environment): Value {
    const entries = [...(statement as unknown as { value: Map<Statement, Statement> }).value];
    const isNumber = ([key]: [Statement, Statement]) => key.type === "IntegerLiteral";
    if (entries.length === 0 || !entries.every(isNumber)) return super.evaluate(statement, environment);
    const texts = entries.map(([key, value]): [Statement, Statement] => [
      node("StringLiteral", { value: String((key as unknown as { value: number }).value) }),
      value,
    ]);
    const mapping = super.evaluate(node("ObjectLiteral", { value: new Map(texts) }), environment);
    this.#numbered.add(mapping);
    return mapping;
  }

  #member({ object, property, computed }: Member, statement: Statement, environment: Environment): Value {
    // A named property or a slice cannot be an integer key.
    if (!computed || property.type === "SliceExpression") return super.evaluate(statement, environment);
    const value = this.evaluate(object, environment);
    let key = this.evaluate(property, environment);
    if (key.type === "UndefinedValue") return key;
    if (this.#numbered.has(value) && key.type === "IntegerValue") {
      key = this.#text(String(key.value), environment);
    }
    const known = { object: given(value), property: given(key) };
    return super.evaluate(node("MemberExpression", { computed, ...known }), environment);
  }

  /** Returns a list of [key, value] pairs. */
  #pairs(mapping: Value, sorted: boolean, environment: Environment): Value {
    const entries = [...mapping.value as Map<string, Value>].map(([key, value]) => ({
      key: Number(key),
      value,
    }));
    if (sorted) entries.sort((a, b) => a.key - b.key);
    const pairs = entries.map(({ key, value }) =>
      node("ArrayLiteral", { value: [node("IntegerLiteral", { value: key }), given(value)] })
    );
    return super.evaluate(node("ArrayLiteral", { value: pairs }), environment);
  }

  #text(value: string, environment: Environment): Value {
    return super.evaluate(node("StringLiteral", { value }), environment);
  }
}

/** Formats like Python's `'{}'.format(a)`, with arguments in order or by index. */
function formatted(pattern: string, values: readonly string[]): string {
  let next = 0;
  const text = pattern.replaceAll(/\{\{|\}\}|\{(\d*)\}/g, (found, place?: string) => {
    if (place === undefined) return found[0];
    const value = values[place === "" ? next++ : Number(place)];
    if (value === undefined) throw new Error("format has fewer values than places");
    return value;
  });
  return bounded(text);
}

/** Returns the name of a filter with arguments. */
function calledName(filter: object): unknown {
  return "callee" in filter ? (filter.callee as { value?: unknown }).value : undefined;
}

/** Returns the smallest or largest number of a list. */
function extreme({ value }: Value, name: "min" | "max"): Value {
  const numbers = value as Value[];
  const isNumber = ({ type }: Value) => type === "IntegerValue" || type === "FloatValue";
  if (numbers.length === 0 || !numbers.every(isNumber)) throw new Error(`${name} takes a list of numbers`);
  return numbers.reduce((found, one) =>
    (name === "min" ? Number(one.value) < Number(found.value) : Number(one.value) > Number(found.value))
      ? one
      : found
  );
}

/** Wraps a known value as a statement. */
function given(value: Value): Statement {
  return node("Given", { value });
}

/** Makes a statement for the library. */
function node(type: string, fields: Record<string, unknown>): Statement {
  return { ...fields, type } as unknown as Statement;
}

function bounded(text: string): string {
  if (text.length > MAX_TEXT) throw new Error(`it made a text of more than ${MAX_TEXT} characters`);
  return text;
}

/** Formats a value like Python's `str`. */
function asText(value: Value): string {
  if (value.type === "StringValue") return String(value.value);
  return value.type === "UndefinedValue" ? "" : inPython(value);
}

/** Formats a value as Python does inside a list or dict. */
function inPython({ type, value }: Pick<Value, "type" | "value">): string {
  switch (type) {
    case "StringValue":
      return textInPython(String(value));
    case "BooleanValue":
      return value ? "True" : "False";
    case "NullValue":
      return "None";
    case "ArrayValue":
      return bounded(`[${(value as Value[]).map(inPython).join(", ")}]`);
    case "ObjectValue": {
      const entries = [...value as Map<string, Value>];
      return bounded(
        `{${entries.map(([key, item]) => `${textInPython(key)}: ${inPython(item)}`).join(", ")}}`,
      );
    }
    case "FloatValue":
      return Number.isInteger(value) ? `${value}.0` : String(value);
    default:
      return String(value);
  }
}

const ESCAPES: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function textInPython(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text.replaceAll(/[\\'\p{Cc}]/gu, (found) => {
    if (found === "'") return quote === "'" ? "\\'" : found;
    return ESCAPES[found] ?? `\\x${found.charCodeAt(0).toString(16).padStart(2, "0")}`;
  });
  return quote + body + quote;
}
