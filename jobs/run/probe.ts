import type { BatchRequest } from "../request.ts";

export type Call = Pick<BatchRequest, "url" | "body">;

/** Returns a one-token request that a working engine answers: the last good request, or one like the failed request. */
export function probeOf(failed: Call, good: Call | undefined): Call {
  if (good !== undefined) {
    const { max_completion_tokens: _, ...body } = good.body;
    return { url: good.url, body: { ...body, max_tokens: 1 } };
  }
  const { url, body: { model, messages } } = failed;
  const content = "Hi";
  const asked = messages === undefined ? { prompt: content } : { messages: [{ role: "user", content }] };
  return { url, body: { model, ...asked, max_tokens: 1 } };
}
