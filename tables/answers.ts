import type { Answer } from "../jobs/answers.ts";
import type { Cell } from "./cells.ts";

/** Type of a column of answers; `json` is a list or an object. */
export type AnswerKind = "text" | "integer" | "number" | "boolean" | "json";

export interface AnswerColumn {
  readonly name: string;
  readonly kind: AnswerKind;
}

type Schema = Readonly<Record<string, unknown>>;

/** The form of the answers: one text, or with an object schema one column per property. */
export class AnswerForm {
  readonly columns: readonly AnswerColumn[];
  private readonly isObject: boolean;

  constructor(readonly schema?: Schema) {
    const whole = schema && resolved(schema, schema);
    const fields = isRecord(whole?.properties) ? Object.entries(whole.properties) : [];
    this.isObject = fields.length > 0;
    this.columns = this.isObject
      ? fields.map(([name, field]) => ({ name, kind: kindOf(field, schema!) }))
      : [{ name: "answer", kind: schema === undefined ? "text" : kindOf(schema, schema) }];
  }

  /** Returns the cells of an answer. Throws Error if the answer does not have the required form. */
  read(body: unknown): Cell[] {
    const { content, finish } = answerOf(body);
    if (this.schema === undefined) return [content];
    let value: unknown;
    try {
      value = JSON.parse(content ?? "");
    } catch {
      throw new Error(
        finish === "length"
          ? "The answer was truncated: raise max_tokens, or use a larger context"
          : "The answer is not the JSON that the schema requires",
      );
    }
    if (!this.isObject) return [checked(value, this.columns[0])];
    if (!isRecord(value)) throw new Error("The answer is not an object, which the schema requires");
    const object = value;
    return this.columns.map((column) =>
      checked(Object.hasOwn(object, column.name) ? object[column.name] : null, column)
    );
  }

  /** Returns the answer, or a failure of its line if the answer does not match the schema. */
  readonly judge = (answer: Answer): Answer => {
    if (answer.status !== 200) return answer;
    try {
      this.read(answer.body);
      return answer;
    } catch (error) {
      return refused(answer, (error as Error).message);
    }
  };
}

/** Returns a value if it has its column's type; otherwise throws Error. */
function checked(value: unknown, { name, kind }: AnswerColumn): Cell {
  const isRight = value === null || kind === "json" || {
    text: () => typeof value === "string",
    boolean: () => typeof value === "boolean",
    number: () => typeof value === "number",
    integer: () => Number.isInteger(value) && Math.abs(value as number) < 2 ** 63,
  }[kind]();
  if (isRight) return value as Cell;
  const article = kind === "integer" ? "an" : "a";
  throw new Error(
    `"${name}" of the answer must be ${article} ${kind} (got ${JSON.stringify(value).slice(0, 80)})`,
  );
}

/** Returns the failure for an answer that was computed, so that its tokens count. */
function refused({ body, engine }: Answer, message: string): Answer {
  const error = { message, type: "invalid_request_error", param: null, code: "answer_not_in_form" };
  return { status: 422, body: { error, usage: body.usage }, engine, final: true };
}

function answerOf(body: unknown): { content: string | null; finish: unknown } {
  const choices = isRecord(body) ? body.choices : undefined;
  const choice = Array.isArray(choices) ? choices[0] : undefined;
  const content = isRecord(choice) && isRecord(choice.message) ? choice.message.content : undefined;
  return { content: typeof content === "string" ? content : null, finish: choice?.finish_reason };
}

/** Returns a schema with its references resolved, and pydantic's form of an optional field simplified. */
function resolved(schema: unknown, root: Schema, depth = 0): Schema {
  if (!isRecord(schema) || depth > 8) return {};
  const { $ref, allOf, anyOf, oneOf } = schema;
  if (typeof $ref === "string" && $ref.startsWith("#/")) {
    const path = $ref.slice(2).split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    const found = path.reduce<unknown>((at, part) => isRecord(at) ? at[part] : undefined, root);
    return resolved(found, root, depth + 1);
  }
  if (Array.isArray(allOf) && allOf.length === 1) return resolved(allOf[0], root, depth + 1);
  const several = anyOf ?? oneOf;
  if (!Array.isArray(several)) return schema;
  const present = several.map((one) => resolved(one, root, depth + 1)).filter(({ type }) => type !== "null");
  return present.length === 1 ? present[0] : {};
}

const KINDS: Readonly<Record<string, AnswerKind>> = {
  string: "text",
  integer: "integer",
  number: "number",
  boolean: "boolean",
};

/** Returns the type of a property; `json` if several types are possible. */
function kindOf(schema: unknown, root: Schema): AnswerKind {
  const found = resolved(schema, root);
  const values = Array.isArray(found.enum) ? found.enum : "const" in found ? [found.const] : undefined;
  const types = values?.map(typeOf) ?? [found.type].flat();
  const present = new Set(types.filter((type) => type !== "null"));
  if (present.size !== 1) return "json";
  const [type] = present;
  return typeof type === "string" && Object.hasOwn(KINDS, type) ? KINDS[type] : "json";
}

/** Returns the schema's name of a value's type. */
function typeOf(value: unknown): string {
  if (value === null) return "null";
  return Number.isInteger(value) ? "integer" : typeof value;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
