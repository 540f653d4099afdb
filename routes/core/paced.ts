import { finish, withPauses, writeLargeJson } from "../../engine/mod.ts";

/** Runs a synchronous action in slices, so that other requests are served meanwhile. See withPauses for its rules. */
export const paced = withPauses;

/** Returns an answer of JSON, which is written in slices. */
export async function jsonAnswer(value: unknown): Promise<Response> {
  const text = await paced(() => finish(writeLargeJson(value)));
  return new Response(text, { headers: { "content-type": "application/json" } });
}
