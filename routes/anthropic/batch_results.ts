import type { LineAnswer } from "../../jobs/types.ts";
import { ApiError } from "../core/errors.ts";
import { ANTHROPIC_ERRORS } from "./errors.ts";

/** Results of requests that got no answer, by the code of the batch. */
const UNANSWERED: Readonly<Record<string, string>> = {
  batch_cancelled: "canceled",
  batch_expired: "expired",
};

/** Yields the results of a batch as JSON lines. */
export async function* batchResults(answers: AsyncIterable<LineAnswer>): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  for await (const answer of answers) {
    const line = { custom_id: answer.custom_id, result: resultOf(answer) };
    yield encoder.encode(`${JSON.stringify(line)}\n`);
  }
}

function resultOf({ response, error }: LineAnswer) {
  if (response?.status_code === 200) return { type: "succeeded", message: response.body };
  if (response) return { type: "errored", error: { ...response.body, request_id: response.request_id } };
  const { code, message } = error!;
  if (Object.hasOwn(UNANSWERED, code)) return { type: UNANSWERED[code] };
  return { type: "errored", error: ANTHROPIC_ERRORS.body(new ApiError(500, code, message)) };
}
