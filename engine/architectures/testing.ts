/** Test helpers: changes of keys and tensors that make a model file invalid. */
import { assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../gguf/errors.ts";
import { changed, type Changes } from "../gguf/testing_changes.ts";
import type { GgufFile } from "../gguf/types.ts";
import { buildPlan } from "./registry.ts";

export type KeyChange = NonNullable<Changes["key"]>;
export type TensorChange = NonNullable<Changes["tensor"]>;

/**
 * Adds a test for each change: buildPlan refuses the file and names the key or tensor. `title` begins the
 * test names.
 */
export function testRefusals(
  title: string,
  file: GgufFile,
  { keys = [], tensors = [] }: {
    readonly keys?: readonly KeyChange[];
    readonly tensors?: readonly TensorChange[];
  },
): void {
  const test = (what: string, change: Changes, field: string) =>
    Deno.test(`${title}: refuses ${what}`, () => {
      const error = assertThrows(() => buildPlan(changed(file, change)), GgufError);
      assertEquals([error.code, error.field], ["GGUF_HPARAM", field]);
    });
  const architecture = file.metadata.getString("general.architecture");
  for (const key of keys) {
    const [name, value] = key;
    test(
      `${name} ${value === undefined ? "missing" : `of ${value}`}`,
      { key },
      `key "${architecture}.${name}"`,
    );
  }
  for (const tensor of tensors) {
    const [name, shape] = tensor;
    const how = shape ? `of ${shape.join(" x ")}` : "missing";
    test(`the tensor ${name} ${how}`, { tensor }, `tensor "${name}"`);
  }
}

/** Returns the file without tensors whose names match. */
export function without(file: GgufFile, names: RegExp): GgufFile {
  return { ...file, tensors: new Map([...file.tensors].filter(([name]) => !names.test(name))) };
}
