import { assertRejects } from "@std/assert";
import { checkConstraint } from "./check.ts";
import { ConstraintError } from "./types.ts";

Deno.test("checkConstraint: without a model, accepts valid constraints and refuses invalid ones", async () => {
  await checkConstraint({ kind: "json_schema", schema: { type: "integer" } });
  await checkConstraint({
    kind: "lark",
    grammar: "start: <[151667]> @content\n",
    parts: { content: { kind: "regex", pattern: "a+" } },
  });
  await assertRejects(
    () => checkConstraint({ kind: "json_schema", schema: { contains: {} } }),
    ConstraintError,
    "/contains",
  );
  await assertRejects(() => checkConstraint({ kind: "regex", pattern: "a(" }), ConstraintError);
  await assertRejects(
    () => checkConstraint({ kind: "choice", choices: [] }),
    ConstraintError,
    "at least one",
  );
});
