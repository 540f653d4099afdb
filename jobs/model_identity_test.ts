import { assertEquals } from "@std/assert";
import { identityDifference } from "./model_identity.ts";

Deno.test("identityDifference: names all differences, and shortens fingerprints", () => {
  const before = { "model": "m", "weights": "0123".repeat(16), "context length": 64 };
  assertEquals(identityDifference(before, { ...before }), undefined);
  assertEquals(
    identityDifference(before, { "model": "m", "weights": "abcd".repeat(16), "context length": 10 }),
    "weights 0123012301230123… (now abcdabcdabcdabcd…), context length 64 (now 10)",
  );
  assertEquals(identityDifference({}, { model: "m" }), 'model not recorded (now "m")');
});
