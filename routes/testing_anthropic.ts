import Anthropic from "@anthropic-ai/sdk";
import type { TestServer } from "./testing_server.ts";

export const PARIS = '<|start|>call weather\n{"city": "Paris 🙂"}';

export const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Weather in Paris and Rome?" }];
export const usual = { model: "demo", max_tokens: 400, messages };
export const tools = [toolOf("weather"), toolOf("time")];

function toolOf(name: string): Anthropic.Tool {
  const properties = { city: { type: "string" } };
  return {
    name,
    description: `About ${name}`,
    input_schema: { type: "object", properties, required: ["city"] },
  };
}

/** Returns the unmodified official Anthropic client. */
export function clientOf({ base }: TestServer, options: ConstructorParameters<typeof Anthropic>[0] = {}) {
  return new Anthropic({ baseURL: base, apiKey: "unused", maxRetries: 0, logLevel: "off", ...options });
}

export interface ErrorBody {
  type: string;
  error: { type: string; message: string; code: string; param: string | null };
  request_id: string | null;
}

export const bodyOf = (error: InstanceType<typeof Anthropic.APIError>) => error.error as unknown as ErrorBody;
