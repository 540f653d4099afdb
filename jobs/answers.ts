import { hash } from "node:crypto";
import {
  encodeJson,
  type JobIdentity,
  type JournalRecord,
  MAX_RECORD_LINE,
} from "./journal/journal_format.ts";
import type { LineRefusal, LineRules, RefusedLine } from "./request.ts";
import { tokenCounts } from "./usage.ts";

/** An endpoint's answer to one request. */
export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  /** Name of the engine that answered, when there may be several engines. */
  readonly engine?: string;
  /** Whether the line itself caused the failure, so that it is not retried. */
  readonly final?: boolean;
}

/**
 * Creates the ids in a job's output from the job's identity and the line index, so that a repeated line gets the same
 * ids.
 */
export class JobIds {
  private readonly job: string;

  constructor(identity: JobIdentity) {
    this.job = hash("sha256", JSON.stringify([identity.input, Object.entries(identity.settings).sort()]));
  }

  of(index: number): { line: string; request: string } {
    const digest = hash("sha256", `${this.job} ${index}`);
    return { line: `batch_req_${digest.slice(0, 24)}`, request: `req_${digest.slice(24, 48)}` };
  }
}

/** Returns the journal record of an answer. Status 200 goes to the output file, any other status to the error file. */
export function answerRecord(ids: JobIds, index: number, customId: string, answer: Answer): JournalRecord {
  if (!isAnswer(answer)) {
    return unansweredRecord(
      ids,
      index,
      customId,
      "invalid_answer",
      "The engine's answer has no status or no body",
    );
  }
  const id = ids.of(index);
  let line: Uint8Array;
  try {
    line = encodeJson({
      id: id.line,
      custom_id: customId,
      response: { status_code: answer.status, request_id: id.request, body: answer.body },
      error: null,
    });
  } catch (error) {
    const message = `The engine's answer cannot be written as JSON: ${(error as Error).message}`;
    return unansweredRecord(ids, index, customId, "invalid_answer", message);
  }
  if (line.length > MAX_RECORD_LINE) {
    const message =
      `The answer has ${line.length} bytes; ${MAX_RECORD_LINE} are allowed. Ask for less in one line`;
    return unansweredRecord(ids, index, customId, "answer_too_large", message);
  }
  const tokens = tokenCounts(answer.body);
  return {
    index,
    completed: answer.status === 200,
    promptTokens: tokens.prompt,
    outputTokens: tokens.output,
    line,
  };
}

/** Returns the journal record of a request that got no HTTP-like answer. */
export function unansweredRecord(
  ids: JobIds,
  index: number,
  customId: string,
  code: string,
  message: string,
): JournalRecord {
  return failedRecord(index, {
    id: ids.of(index).line,
    custom_id: customId,
    response: null,
    error: { code, message },
  });
}

/**
 * Returns the journal record of a line refused before the job runs: the endpoint's error body plus the line's number.
 */
export function refusalRecord(
  ids: JobIds,
  index: number,
  { refusal, url }: RefusedLine,
  bodyOf: LineRules["refusalBody"] = openAiBody,
): JournalRecord {
  const id = ids.of(index);
  const body = bodyOf(url, refusal);
  return failedRecord(index, {
    id: id.line,
    custom_id: refusal.customId,
    response: { status_code: 400, request_id: id.request, body },
    error: null,
  });
}

function openAiBody(_: string | undefined, { message, param, code, line }: LineRefusal) {
  return { error: { message, type: "invalid_request_error", param, code, line } };
}

function failedRecord(index: number, line: unknown): JournalRecord {
  return { index, completed: false, promptTokens: 0, outputTokens: 0, line: encodeJson(line) };
}

function isAnswer(answer: Answer): boolean {
  return Number.isInteger(answer?.status) && answer.status >= 100 && answer.status <= 599 &&
    typeof answer.body === "object" && answer.body !== null;
}
