import { Input, type Reading } from "../input.ts";
import type { Mark, Marks } from "../marks.ts";

/** Maximum depth of lists and objects in a value. Each level takes a part of the call stack. */
const MAX_DEPTH = 256;

/**
 * Reads a value in a model's loose spelling and passes it on as JSON. Accepts Python's words and quotes, keys without
 * quotes, and strings between marks. Returns false if the value does not end or is nested too deeply.
 */
export function* readLooseValue(
  input: Input,
  emit: (json: string) => void,
  quote?: Mark,
  depth = 0,
): Reading<boolean> {
  if (depth > MAX_DEPTH) return false;
  yield* input.blank();
  if (quote && (yield* input.mark([quote]))) return yield* readQuoted(input, emit, quote);
  const next = yield* input.peek();
  if (next === '"') return yield* input.json(emit);
  if (next === "'") return yield* readPythonString(input, emit);
  if (yield* input.accept(["["])) {
    emit("[");
    return yield* readItems(input, emit, "]", () => readLooseValue(input, emit, quote, depth + 1));
  }
  if (yield* input.accept(["{"])) {
    emit("{");
    return yield* readItems(input, emit, "}", () => readEntry(input, emit, quote, depth + 1));
  }
  const word = yield* input.characters(/[^\s,:)\]}\p{Surrogate}]/u);
  emit(WORDS[word] ?? (isNumber(word) ? word : JSON.stringify(word)));
  return word !== "";
}

/** Returns a text as JSON if it is exactly one loosely spelled value; undefined for any other text. */
export function looseJson(text: string, marks: Marks): string | undefined {
  const input = new Input(marks);
  input.add(text);
  input.end();
  let json = "";
  function* readAll(): Reading<boolean> {
    const isWhole = yield* readLooseValue(input, (piece) => json += piece);
    yield* input.blank();
    return isWhole && (yield* input.peek()) === "";
  }
  // The input is complete, so the reader never waits for more.
  if (!readAll().next().value) return undefined;
  try {
    JSON.parse(json);
    return json;
  } catch {
    return undefined;
  }
}

/**
 * Returns a function that takes a text in pieces, and returns whether a loosely spelled value ends in the piece. Values
 * that only the end of the text can end, such as numbers, do not count.
 */
export function looseEnds(marks: Marks): (piece: string) => boolean {
  const input = new Input(marks);
  const reading = readLooseValue(input, () => {});
  let ended = false;
  return (piece) => {
    if (ended) return false;
    input.add(piece);
    return ended = reading.next().done!;
  };
}

const WORDS: Readonly<Record<string, string>> = {
  True: "true",
  False: "false",
  None: "null",
  true: "true",
  false: "false",
  null: "null",
};

function isNumber(word: string): boolean {
  return /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(word);
}

/** Reads items separated by commas, up to `close`. */
export function* readItems(
  input: Input,
  emit: (json: string) => void,
  close: string,
  item: () => Reading<boolean>,
  closed = close,
): Reading<boolean> {
  for (let first = true;; first = false) {
    yield* input.blank();
    if (yield* input.accept([close])) {
      emit(closed);
      return true;
    }
    if (!first) {
      if (!(yield* input.accept([","]))) return false;
      yield* input.blank();
      if (yield* input.accept([close])) {
        emit(closed);
        return true;
      }
      emit(", ");
    }
    if (!(yield* item())) return false;
  }
}

export function* readEntry(
  input: Input,
  emit: (json: string) => void,
  quote?: Mark,
  depth = 0,
): Reading<boolean> {
  if (!(yield* readKey(input, emit, quote))) return false;
  yield* input.blank();
  if (!(yield* input.accept([":"]))) return false;
  emit(": ");
  return yield* readLooseValue(input, emit, quote, depth);
}

function* readKey(input: Input, emit: (json: string) => void, quote?: Mark): Reading<boolean> {
  const next = yield* input.peek();
  if (next === '"' || next === "'" || (quote && next === quote.sign[0])) {
    return yield* readLooseValue(input, emit, quote);
  }
  const key = yield* input.characters(/[^:,}\p{Surrogate}]/u);
  emit(JSON.stringify(key.trim()));
  return key !== "";
}

function* readQuoted(input: Input, emit: (json: string) => void, quote: Mark): Reading<boolean> {
  emit('"');
  const end = yield* input.until([quote], (text) => emit(JSON.stringify(text).slice(1, -1)));
  if (end) emit('"');
  return end !== undefined;
}

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", b: "\b", f: "\f", "\n": "" };

/** Reads a Python string in single quotes, without rare escapes. */
function* readPythonString(input: Input, emit: (json: string) => void): Reading<boolean> {
  yield* input.accept(["'"]);
  emit('"');
  for (;;) {
    const plain = yield* input.characters(/[^'\\]/);
    if (plain !== "") emit(JSON.stringify(plain).slice(1, -1));
    if (yield* input.accept(["'"])) {
      emit('"');
      return true;
    }
    if (!(yield* input.accept(["\\"]))) return false;
    const escaped = yield* input.next();
    if (escaped === "") return false;
    emit(JSON.stringify(ESCAPES[escaped] ?? escaped).slice(1, -1));
  }
}
