import { assertEquals, assertThrows } from "@std/assert";
import { ArchitectureKeys } from "./architecture_keys.ts";
import { GgufError } from "../errors.ts";
import { readMambaHparams } from "./mamba_hparams.ts";
import { parseGguf } from "../reader.ts";
import { GgufBuilder } from "../testing.ts";

const KEYS = {
  "ssm.conv_kernel": 4,
  "ssm.inner_size": 768,
  "ssm.state_size": 48,
  "ssm.time_step_rank": 16,
  "ssm.group_count": 4,
};

/** Reads hyper-parameters after changes to keys; undefined removes a key. */
function read(changes: Record<string, number | undefined> = {}) {
  const builder = new GgufBuilder().set("general.architecture", "STRING", "granitehybrid");
  for (const [key, value] of Object.entries({ ...KEYS, ...changes })) {
    if (value !== undefined) builder.set(`granitehybrid.${key}`, "UINT32", value);
  }
  return readMambaHparams(ArchitectureKeys.of(parseGguf(builder.build().bytes).metadata));
}

Deno.test("mamba hparams: reads the keys", () => {
  assertEquals(read(), { heads: 16, headDim: 48, groups: 4, stateSize: 48 });
});

const REFUSED: readonly (readonly [key: string, value: number | undefined, must: string])[] = [
  ["ssm.conv_kernel", 3, "4"],
  ["ssm.conv_kernel", undefined, "missing"],
  ["ssm.group_count", 5, "a divisor of the 16 heads"],
  ["ssm.group_count", 0, "1 to 4096"],
  ["ssm.group_count", 16, "a divisor of 768 that leaves each group a multiple of 32 channels"],
  ["ssm.time_step_rank", undefined, "missing"],
  ["ssm.time_step_rank", 1_000_000, "1 to 4096"],
  ["ssm.state_size", 40, "a multiple of 16"],
  ["ssm.state_size", 512, "1 to 256"],
  ["ssm.inner_size", 760, "a multiple of 256, for 16 heads"],
  ["ssm.inner_size", 8192, "1 to 4096"],
];

for (const [key, value, must] of REFUSED) {
  Deno.test(`mamba hparams: refuses ${key} ${value === undefined ? "missing" : `of ${value}`}`, () => {
    const error = assertThrows(() => read({ [key]: value }), GgufError, must);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `key "granitehybrid.${key}"`]);
  });
}
