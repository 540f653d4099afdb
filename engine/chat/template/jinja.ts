import { Environment, type Interpreter, Template } from "@huggingface/jinja";
import { MAX_TEXT, PythonInterpreter } from "./python_jinja.ts";
import type { RESERVED_TEMPLATE_VARIABLES } from "../../tokenizer/types.ts";

/**
 * Runs untrusted Jinja templates. They see no JavaScript, only the given values, and have limits on time and
 * output size.
 */

/** Limit for a template; the largest published ones have 30,000 characters. */
const MAX_SOURCE = 1 << 20;
/** Limit for the items of any list, far above the needs of a context of a million tokens. */
const MAX_ITEMS = 1 << 20;
/**
 * Limit for the time of one rendering. A conversation takes milliseconds, and the whole process waits for it.
 */
const MAX_MS = 2000;

/** Thrown where a template calls `raise_exception`. Its message is for the author of the conversation. */
export class TemplateRefusal extends Error {
  override name = "TemplateRefusal";
}

/** Renders with the given variables. Throws TemplateRefusal, or other errors where the template fails. */
export type Render = (variables: Record<string, unknown>) => string;

/** Global names in templates. A request's variables cannot use them. */
const GLOBALS: Readonly<Partial<Record<typeof RESERVED_TEMPLATE_VARIABLES[number], unknown>>> = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  raise_exception: (reason: unknown) => {
    throw new TemplateRefusal(String(reason).slice(0, 1000));
  },
  range: boundedRange,
  strftime_now: (format: unknown) => strftime(new Date(), String(format)),
};

/** Parses a template. Throws where it is too large or invalid. */
export function compileTemplate(source: string): Render {
  if (source.length > MAX_SOURCE) {
    throw new Error(`the template must have at most ${MAX_SOURCE} characters (got ${source.length})`);
  }
  const { parsed } = new Template(source);
  return (variables) => {
    const environment = new Environment();
    for (const [name, value] of Object.entries({ ...GLOBALS, ...variables })) environment.set(name, value);
    return String(new BoundedInterpreter(environment).run(parsed).value);
  };
}

type Evaluate = Interpreter["evaluate"];

/** Checks the time and the size of every value during evaluation. */
class BoundedInterpreter extends PythonInterpreter {
  readonly #deadline = performance.now() + MAX_MS;

  override evaluate(...[statement, environment]: Parameters<Evaluate>): ReturnType<Evaluate> {
    if (performance.now() > this.#deadline) throw new Error(`it ran for more than ${MAX_MS / 1000} s`);
    const result = super.evaluate(statement, environment);
    const value: unknown = result.value;
    if (typeof value === "string" && value.length > MAX_TEXT) {
      throw new Error(`it made a text of more than ${MAX_TEXT} characters`);
    }
    if (Array.isArray(value) && value.length > MAX_ITEMS) {
      throw new Error(`it made a list of more than ${MAX_ITEMS} items`);
    }
    return result;
  }
}

/** Python's `range`. */
function boundedRange(...bounds: unknown[]): number[] {
  const [start, stop, step] = bounds.length === 1
    ? [0, bounds[0], 1]
    : [bounds[0], bounds[1], bounds[2] ?? 1];
  const count = Math.max(0, Math.ceil((Number(stop) - Number(start)) / Number(step)));
  if (!(count <= MAX_ITEMS)) throw new Error(`range(${bounds.join(", ")}) is not within ${MAX_ITEMS} items`);
  return Array.from({ length: count }, (_, i) => Number(start) + i * Number(step));
}

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

/**
 * Formats a date like Python's `strftime`, in local time and English. Rare fields are not supported and stay
 * unchanged.
 */
export function strftime(date: Date, format: string): string {
  const two = (number: number) => String(number).padStart(2, "0");
  const fields: Record<string, () => string> = {
    Y: () => String(date.getFullYear()),
    y: () => two(date.getFullYear() % 100),
    m: () => two(date.getMonth() + 1),
    d: () => two(date.getDate()),
    B: () => MONTHS[date.getMonth()],
    b: () => MONTHS[date.getMonth()].slice(0, 3),
    A: () => DAYS[date.getDay()],
    a: () => DAYS[date.getDay()].slice(0, 3),
    H: () => two(date.getHours()),
    I: () => two(date.getHours() % 12 || 12),
    M: () => two(date.getMinutes()),
    S: () => two(date.getSeconds()),
    p: () => date.getHours() < 12 ? "AM" : "PM",
    "%": () => "%",
  };
  return format.replaceAll(/%([A-Za-z%])/g, (whole, field) => fields[field]?.() ?? whole);
}
