import { Interpreter } from "@huggingface/jinja";

/** What published templates rely on in Python's Jinja, and the library does not have. */

/** Characters of any text: far above what a context of a million tokens needs. */
export const MAX_TEXT = 1 << 26;

type Evaluate = Interpreter["evaluate"];
type Statement = NonNullable<Parameters<Evaluate>[0]>;
type Environment = Parameters<Evaluate>[1];
type Value = ReturnType<Evaluate>;

/** Statements as the library parses them, as far as they are read here. */
interface Filtered {
  readonly operand: Statement;
  readonly filter: { readonly type: string; readonly value?: unknown };
}
interface Member {
  readonly object: Statement;
  readonly property: Statement;
  readonly computed: boolean;
}

/** Filters that take a text: what is undefined is an empty one for them. */
const TEXT_FILTERS: ReadonlySet<unknown> = new Set([
  "trim",
  "lower",
  "upper",
  "title",
  "capitalize",
  "string",
]);

export class PythonInterpreter extends Interpreter {
  /** Mappings whose keys are whole numbers, which the library keeps as texts. */
  readonly #numbered = new WeakSet<Value>();

  override evaluate(...[statement, environment]: Parameters<Evaluate>): Value {
    switch (statement?.type) {
      case "Given":
        return (statement as unknown as { value: Value }).value;
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

  #filtered({ operand, filter }: Filtered, statement: Statement, environment: Environment): Value {
    const value = this.evaluate(operand, environment);
    const name = filter.type === "Identifier" ? filter.value : undefined;
    if (name === "string" && value.type === "ObjectValue") return this.#text(inPython(value), environment);
    if (this.#numbered.has(value) && (name === "dictsort" || name === "items")) {
      return this.#pairs(value, name === "dictsort", environment);
    }
    const isText = value.type === "UndefinedValue" && TEXT_FILTERS.has(name);
    const given = node("Given", { value: isText ? this.#text("", environment) : value });
    return super.evaluate(node("FilterExpression", { ...statement, operand: given }), environment);
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
    // What has a name is no key that is a number.
    if (!computed || property.type === "SliceExpression") return super.evaluate(statement, environment);
    const value = this.evaluate(object, environment);
    let key = this.evaluate(property, environment);
    if (this.#numbered.has(value) && key.type === "IntegerValue") {
      key = this.#text(String(key.value), environment);
    }
    const given = { object: node("Given", { value }), property: node("Given", { value: key }) };
    return super.evaluate(node("MemberExpression", { computed, ...given }), environment);
  }

  /** A list of keys with their values. */
  #pairs(mapping: Value, sorted: boolean, environment: Environment): Value {
    const entries = [...mapping.value as Map<string, Value>].map(([key, value]) => ({
      key: Number(key),
      value,
    }));
    if (sorted) entries.sort((a, b) => a.key - b.key);
    const pairs = entries.map(({ key, value }) =>
      node("ArrayLiteral", { value: [node("IntegerLiteral", { value: key }), node("Given", { value })] })
    );
    return super.evaluate(node("ArrayLiteral", { value: pairs }), environment);
  }

  #text(value: string, environment: Environment): Value {
    return super.evaluate(node("StringLiteral", { value }), environment);
  }
}

/** A statement for the library; "Given" is one whose value is known. */
function node(type: string, fields: Record<string, unknown>): Statement {
  return { ...fields, type } as unknown as Statement;
}

function bounded(text: string): string {
  if (text.length > MAX_TEXT) throw new Error(`it made a text of more than ${MAX_TEXT} characters`);
  return text;
}

/** A value as Python writes it in a list or a dict. */
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
