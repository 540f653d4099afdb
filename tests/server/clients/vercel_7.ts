import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import * as ai from "ai";
import { makeCalls } from "./vercel.ts";

await makeCalls({ ai, createAnthropic, createOpenAI, createOpenAICompatible });
