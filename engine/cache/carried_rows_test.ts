import { assertEquals } from "@std/assert";
import type { Sequence } from "../schedule/sequence.ts";
import { CarriedRows } from "./carried_rows.ts";

/** A sequence with that many computed tokens. */
const sequenceOf = (cached: number) => ({ kv: { cached } }) as unknown as Sequence;

Deno.test("carried rows: a sequence starts with nothing, or behind a cached prefix with zeros", () => {
  const rows = new CarriedRows(8, 4);
  const [fresh, cached] = [sequenceOf(0), sequenceOf(32)];
  for (const sequence of [fresh, cached]) rows.start(sequence);
  const [first, second] = [rows.step(fresh), rows.step(cached)];
  assertEquals(first, { read: undefined, write: 0, saves: [] });
  assertEquals(second, { read: 7, write: 1, saves: [] });
  for (const sequence of [fresh, cached]) sequence.kv.cached += 5;
  assertEquals(rows.step(fresh).read, first.write);
  assertEquals(rows.step(cached).read, second.write);
});

Deno.test("carried rows: a sequence continues with the row of its last correct draft token", () => {
  for (const right of [0, 1, 2]) {
    const rows = new CarriedRows(8, 4);
    const sequence = sequenceOf(0);
    rows.start(sequence);
    rows.step(sequence);
    sequence.kv.cached = 10;
    const { read, write, saves } = rows.draft(sequence, 3, 2);
    assertEquals(read, 0);
    assertEquals(saves.map(({ after }) => after), [3, 4]);
    const after = [...saves.map(({ slot }) => slot), write];
    assertEquals(new Set([0, ...after]).size, 4);
    rows.drafted(sequence, right);
    sequence.kv.cached += 3 + right;
    assertEquals(rows.step(sequence), { read: after[right], write: after[right], saves: [] });
    assertEquals(rows.draftRoom(), 3);
  }
});

Deno.test("carried rows: a stopped step and an ended sequence give their slots back", () => {
  const rows = new CarriedRows(8, 4);
  const sequence = sequenceOf(0);
  rows.start(sequence);
  rows.draft(sequence, 1, 3);
  assertEquals(rows.draftRoom(), 0);
  rows.draft(sequence, 1, 1);
  assertEquals(rows.draftRoom(), 1);
  rows.release(sequence);
  assertEquals(rows.draftRoom(), 3);
  const others = [0, 0, 0].map(sequenceOf);
  for (const other of others) rows.start(other);
  assertEquals(new Set(others.map((other) => rows.step(other).write)).size, 3);
});
