/** Tests over a table of corrupt files: each is refused with its error code, byte and field. */

import { assertEquals, assertThrows } from "@std/assert";
import { GgufError, type GgufErrorCode } from "./errors.ts";
import { type BuiltGguf, type GgufBuilder, smallModel } from "./testing.ts";

export interface BadFile {
  readonly what: string;
  readonly code: GgufErrorCode;
  /**
   * Expected place in the error: a field of BuiltGguf, optionally with `+N`, or a byte; undefined if
   * something is missing.
   */
  readonly at: string | number | undefined;
  readonly field: string;
  /** The file to corrupt; by default `smallModel`. */
  readonly base?: () => GgufBuilder;
  /** Corrupts the file in place, or returns other bytes. */
  readonly spoil?: (file: BuiltGguf) => Uint8Array | BuiltGguf | void;
  /** The file size to claim, bytes. */
  readonly fileSize?: number;
}

/** Adds a test for each file that checks the error that `load` throws. */
export function testBadFiles(
  load: (bytes: Uint8Array, fileSize: number) => void,
  files: readonly BadFile[],
): void {
  for (const { what, code, at, field, base = smallModel, spoil, fileSize } of files) {
    Deno.test(`reader: refuses a file with ${code}: ${what}`, () => {
      const file = base().build();
      const spoilt = spoil?.(file);
      const bytes = spoilt instanceof Uint8Array ? spoilt : file.bytes;
      const error = assertThrows(() => load(bytes, fileSize ?? bytes.length), GgufError);
      const byte = typeof at === "string" ? byteAt(file, at) : at;
      assertEquals([error.code, error.byte, error.field], [code, byte, field], error.message);
    });
  }
}

function byteAt(file: BuiltGguf, at: string): number {
  const [field, more] = at.split("+");
  return file.at(field) + Number(more ?? 0);
}

export const keyField = (name: string): string => `key "${name}"`;
export const tensorField = (name: string): string => `tensor "${name}"`;
