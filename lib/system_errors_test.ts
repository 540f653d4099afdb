import { assertEquals } from "@std/assert";
import { explained, messageOf, systemReason } from "./system_errors.ts";

const opening = (what: string, code: number) => `${what} (os error ${code}): open '/models/a.gguf'`;

Deno.test("system errors: describe a refused operation without the system's codes and calls", () => {
  const cases: [error: Error, reason: string | undefined][] = [
    [
      new Deno.errors.PermissionDenied(opening("Permission denied", 13)),
      "permission denied: this user may not do that",
    ],
    [
      new Deno.errors.FilesystemLoop(opening("Too many levels of symbolic links", 40)),
      "its symbolic links lead in a circle",
    ],
    [new Error(opening("File name too long", 36)), "file name too long"],
    [new Error(opening("Read-only file system", 30)), "read-only file system"],
    [new Error("ENAMETOOLONG: name too long, open '/models/a.gguf'"), "name too long"],
    [new Error("EROFS: read-only file system, mkdir '/models'"), "read-only file system"],
    [new Error("EIO: i/o error, read"), "i/o error"],
    [new Error("The file is broken"), undefined],
    [
      Object.assign(new Error(opening("Too many open files", 24)), { code: "EMFILE" }),
      "this process has too many files open (ulimit -n)",
    ],
    [
      Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" }),
      "the disk is full",
    ],
  ];
  for (const [error, reason] of cases) assertEquals(systemReason(error), reason);
});

Deno.test("system errors: name each missing permission, and never advise to allow everything", () => {
  const special = new Deno.errors.NotCapable(
    'Requires all access to "/dev/stdin", run again with the --allow-all flag',
  );
  assertEquals(
    messageOf(special),
    'Cannot use "/dev/stdin": tasks may not open devices, pipes and files of the system; copy it to an ordinary file first',
  );
  const other = new Deno.errors.NotCapable(
    'Requires ffi access to "a.so", run again with the --allow-ffi flag',
  );
  assertEquals(messageOf(other), other.message);
});

Deno.test("system errors: say what failed, why, and what to do; other errors stay unchanged", () => {
  const error = explained(
    'Cannot read "a"',
    new Deno.errors.PermissionDenied(opening("", 13)),
    "use another",
  );
  assertEquals(
    (error as Error).message,
    'Cannot read "a": permission denied: this user may not do that; use another',
  );
  const bug = new TypeError("x is not a function");
  assertEquals(explained('Cannot read "a"', bug), bug);
  assertEquals(
    messageOf(new Error(opening("Input/output error", 5))),
    'Cannot use "/models/a.gguf": input/output error',
  );
});
