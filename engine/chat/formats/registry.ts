import { cohere } from "./cohere.ts";
import { deepseek } from "./deepseek.ts";
import { dsml } from "./dsml.ts";
import type { CallFormat } from "./format.ts";
import { gemma } from "./gemma.ts";
import { general } from "./general.ts";
import { glm } from "./glm.ts";
import { granite } from "./granite.ts";
import { harmony } from "./harmony.ts";
import { hermes } from "./hermes.ts";
import { kimi } from "./kimi.ts";
import { lfm2 } from "./lfm2.ts";
import { llama } from "./llama.ts";
import { minimax } from "./minimax.ts";
import { minimaxM3 } from "./minimax_m3.ts";
import { mistral } from "./mistral.ts";
import { nemotron } from "./nemotron.ts";
import { olmo } from "./olmo.ts";
import { phi4 } from "./phi4.ts";
import { qwenXml } from "./qwen_xml.ts";

/**
 * All formats of tool calls. A model uses the first one that recognises its template; the last recognises every
 * template.
 */
export const CALL_FORMATS: readonly CallFormat[] = [
  harmony,
  mistral,
  gemma,
  lfm2,
  olmo,
  qwenXml,
  glm,
  dsml,
  deepseek,
  kimi,
  cohere,
  minimax,
  minimaxM3,
  phi4,
  granite,
  nemotron,
  hermes,
  llama,
  general,
];
