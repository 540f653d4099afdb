import { createAnthropic } from "@ai-sdk/anthropic-3";
import { createOpenAI } from "@ai-sdk/openai-3";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible-2";
import * as ai from "ai-6";
import { makeCalls, type Sdk } from "./vercel.ts";

// The calls are typed for the newest version.
await makeCalls({ ai, createAnthropic, createOpenAI, createOpenAICompatible } as unknown as Sdk);
