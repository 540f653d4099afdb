import { assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../errors.ts";
import { type PoolingKind, readPooling } from "./pooling.ts";
import { parseGguf } from "../reader.ts";
import { GgufBuilder } from "../testing.ts";

function fileWith(code?: number, head?: number[]) {
  const builder = new GgufBuilder().set("general.architecture", "STRING", "qwen3");
  if (code !== undefined) builder.set("qwen3.pooling_type", "UINT32", code);
  if (head) builder.tensor("cls.output.weight", "F32", head);
  return parseGguf(builder.build().bytes);
}

Deno.test("pooling: uses the chosen kind, else the file's, else the last row", () => {
  const read: [code: number | undefined, chosen: PoolingKind | undefined, kind: PoolingKind][] = [
    [undefined, undefined, "last"],
    [0, undefined, "last"],
    [1, undefined, "mean"],
    [2, undefined, "cls"],
    [3, undefined, "last"],
    [1, "last", "last"],
    [undefined, "mean", "mean"],
  ];
  for (const [code, chosen, kind] of read) {
    assertEquals(readPooling(fileWith(code), chosen), { kind, labels: 0 });
  }
  assertEquals(readPooling(fileWith(4, [64, 2])), { kind: "rank", labels: 2 });
  assertEquals(readPooling(fileWith(undefined, [64, 3]), "rank"), { kind: "rank", labels: 3 });
  assertEquals(readPooling(fileWith(4, [64, 2]), "last"), { kind: "last", labels: 0 });
});

Deno.test("pooling: refuses an unknown kind, and ranking without a head", () => {
  for (
    const [file, message] of [
      [fileWith(5), "0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank) (got 5)"],
      [fileWith(4), 'Choose another pooling to embed texts: pooling: "last"'],
      [fileWith(4, [64]), "must have 1 to 1024 rows, one for each label (got 0)"],
      [fileWith(4, [64, 1025]), "must have 1 to 1024 rows, one for each label (got 1025)"],
    ] as const
  ) {
    const error = assertThrows(() => readPooling(file), GgufError, message);
    assertEquals(error.code, "GGUF_HPARAM");
  }
});
