import { itemOf } from "./access.ts";
import { add } from "./operators.ts";
import { TESTS } from "./tests.ts";
import { str } from "./texts.ts";
import {
  type Args,
  compare,
  equal,
  iterate,
  Lazy,
  truthy,
  Tuple,
  typeName,
  Undefined,
  type Value,
  type Work,
} from "./values.ts";

/** Jinja's list filters. */

export type Filter = (value: Value, args: Args, work: Work) => Value;

type Read = (item: Value) => Value;

/** Returns a function that reads an attribute by its path, for example "function.name" or 0. */
function reader(path: Value, work: Work, otherwise?: Value): Read {
  const parts = String(path).split(".").map((part) => /^\d+$/.test(part) ? Number(part) : part);
  return (item) => {
    work.spend(parts.length * 10);
    const found = parts.reduce<Value>((value, part) => itemOf(value, part, work), item);
    return found instanceof Undefined && otherwise !== undefined ? otherwise : found;
  };
}

/** Returns a function that reads the sort value. Text is in lower case, unless `caseCounts`. */
function orderReader(path: Value, caseCounts: boolean, work: Work): Read {
  const read = path === null || path === undefined ? (item: Value) => item : reader(path, work);
  return (item) => {
    const value = read(item);
    return typeof value === "string" && !caseCounts ? work.text(value.toLowerCase()) : value;
  };
}

/** Returns the sorted items. As in Python's `sorted`, equal items keep their order. */
function sorted(items: readonly Value[], by: Read, reverse: boolean, work: Work): Value[] {
  work.items(items.length);
  const keyed = items.map((item) => [by(item), item] as const);
  keyed.sort(([a], [b]) => (work.spend(2), reverse ? compare(b, a, work) : compare(a, b, work)));
  return keyed.map(([, item]) => item);
}

/** Returns the items of a value; no items for null, 0 and other false values. */
function optional(value: Value, work: Work): readonly Value[] {
  return truthy(value) ? iterate(value, work) : [];
}

function chosen(wanted: boolean, byAttribute: boolean): Filter {
  return (value, args, work) =>
    new Lazy(() => {
      const read: Read = byAttribute ? reader(args.list[0], work) : (item) => item;
      const rest = byAttribute ? args.rest : args;
      const name = rest.list[0];
      const test = name === undefined ? truthy : TESTS.get(String(name));
      if (!test) throw new Error(`there is no test named ${JSON.stringify(name)}`);
      return work.list([...optional(value, work)]).filter((item) =>
        test(read(item), rest.rest, work) === wanted
      );
    });
}

function extreme(sign: number): Filter {
  return (value, args, work) => {
    const by = orderReader(
      args.get(1, "attribute", null),
      args.get(0, "case_sensitive", false) === true,
      work,
    );
    const items = iterate(value, work);
    work.items(items.length);
    if (items.length === 0) return new Undefined("No aggregated item, sequence was empty.");
    return items.reduce((best, item) => sign * compare(by(item), by(best), work) > 0 ? item : best);
  };
}

const dictsort: Filter = (value, args, work) => {
  if (!(value instanceof Map)) throw new Error(`dictsort takes a dict (got ${typeName(value)})`);
  const place = args.text(1, "by", "key") === "value" ? 1 : 0;
  const by = orderReader(place, args.get(0, "case_sensitive", false) === true, work);
  return sorted([...value].map(Tuple.make), by, args.get(2, "reverse", false) === true, work);
};

const sort: Filter = (value, args, work) => {
  const caseCounts = args.get(1, "case_sensitive", false) === true;
  const paths = String(args.get(2, "attribute", null) ?? "").split(",");
  const readers = paths.map((path) => orderReader(path || null, caseCounts, work));
  const by: Read = readers.length === 1 ? readers[0] : (item) => readers.map((read) => read(item));
  return sorted([...iterate(value, work)], by, truthy(args.get(0, "reverse", false)), work);
};

const groupby: Filter = (value, args, work) => {
  const path = args.get(0, "attribute");
  const by = orderReader(path, args.get(2, "case_sensitive", false) === true, work);
  const read = reader(path, work, args.get(1, "default"));
  const groups: Value[][] = [];
  let last: Value;
  for (const item of sorted([...iterate(value, work)], by, false, work)) {
    if (groups.length === 0 || !equal(by(item), last, work)) groups.push([]);
    groups.at(-1)!.push(item);
    last = by(item);
  }
  return groups.map((items) => new Group(read(items[0]), items));
};

/** A tuple whose two items also have names (`groupby`). */
class Group extends Tuple {
  constructor(readonly grouper: Value, readonly list: Value[]) {
    super();
    this.push(grouper, list);
  }

  attribute(name: string): Value {
    return name === "grouper" ? this.grouper : name === "list" ? this.list : undefined;
  }
}

const batch: Filter = (value, args, work) => {
  const size = args.int(0, "linecount");
  const fill = args.get(1, "fill_with", null);
  if (size < 1) throw new Error("batch takes a size of at least 1");
  const items = iterate(value, work);
  const rows = Array.from(
    { length: Math.ceil(work.list([...items]).length / size) },
    (_, row) => items.slice(row * size, (row + 1) * size),
  );
  const last = rows.at(-1);
  if (last && fill !== null) {
    rows[rows.length - 1] = [...last, ...Array(Math.min(1000, size - last.length)).fill(fill)];
  }
  return new Lazy(() => rows);
};

const slice: Filter = (value, args, work) => {
  const [count, fill] = [args.int(0, "slices"), args.get(1, "fill_with", null)];
  if (count < 1 || count > 10_000) throw new Error("slice takes a count from 1 to 10000");
  const items = iterate(value, work);
  const [each, more] = [Math.floor(items.length / count), items.length % count];
  return new Lazy(() =>
    Array.from({ length: count }, (_, at) => {
      const from = at * each + Math.min(at, more);
      const part = items.slice(from, from + each + (at < more ? 1 : 0));
      return fill !== null && at >= more ? [...part, fill] : part;
    })
  );
};

/** Returns the list filters. `filterOf` finds the filter that `map` applies. */
export function listFilters(filterOf: (name: string) => Filter | undefined): Record<string, Filter> {
  return {
    batch,
    dictsort,
    first: (value, _, work) => firstOf(iterate(value, work)),
    groupby,
    join: (value, args, work) => {
      const path = args.get(1, "attribute", null);
      const read: Read = path === null ? (item) => item : reader(path, work);
      const texts = work.list(iterate(value, work).map((item) => str(read(item), work)));
      return texts.reduce<Value>(
        (text, one, at) => at === 0 ? one : add(add(text, str(args.get(0, "d", ""), work), work), one, work),
        "",
      );
    },
    last: (value, _, work) => {
      if (value instanceof Lazy) throw new Error("'generator' object is not reversible");
      return firstOf(iterate(value, work).slice(-1));
    },
    list: (value, _, work) => work.list([...iterate(value, work)]),
    map: (value, args, work) =>
      new Lazy(() => {
        const items = optional(value, work);
        work.items(items.length);
        if (args.list.length === 0) {
          return items.map(reader(args.get(0, "attribute"), work, args.get(1, "default")));
        }
        const filter = filterOf(String(args.list[0]));
        if (!filter) throw new Error(`there is no filter named ${JSON.stringify(args.list[0])}`);
        return items.map((item) => filter(item, args.rest, work));
      }),
    max: extreme(1),
    min: extreme(-1),
    reject: chosen(false, false),
    rejectattr: chosen(false, true),
    reverse: (value, _, work) => {
      const items = work.list([...iterate(value, work)].reverse());
      return typeof value === "string" ? items.join("") : new Lazy(() => items);
    },
    select: chosen(true, false),
    selectattr: chosen(true, true),
    slice,
    sort,
    unique: (value, args, work) => {
      const by = orderReader(
        args.get(1, "attribute", null),
        args.get(0, "case_sensitive", false) === true,
        work,
      );
      const seen: Value[] = [];
      return new Lazy(() =>
        iterate(value, work).filter((item) => {
          const own = by(item);
          if (seen.some((one) => (work.spend(1), equal(one, own, work)))) return false;
          return seen.push(own) > 0;
        })
      );
    },
  };
}

function firstOf(items: readonly Value[]): Value {
  return items.length > 0 ? items[0] : new Undefined("No first item, sequence was empty.");
}
