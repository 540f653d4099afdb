import { join } from "@std/path";
import { FORMAT_CASES, type FormatCase } from "../../engine/chat/formats/testing.ts";
import { cohere, type Script } from "../../engine/chat/formats/testing_writers.ts";
import { type TestModel, testModel } from "../../engine/chat/testing.ts";
import { PEER, run } from "../../tools/parity/programs.ts";

/** Templates of real models, downloaded on demand, and the expected call format of each. */

/** llama.cpp's source in node-llama-cpp, and the path of its templates. */
const BUNDLE = "llama/gitRelease.bundle";
const FOLDER = "models/templates";
/** PyPI's `guidance` has Phi-4-mini's template as a string in its source. */
const GUIDANCE = { package: "guidance==0.3.1", file: "guidance/chat.py", name: "phi_4_mini_template" };
const PHI = "Phi-4-mini";

/** A template and its test case. */
export interface RealTemplate {
  /** File name in the folder, without `.jinja`. */
  readonly name: string;
  /** Title of the template's entry in FORMAT_CASES. */
  readonly title: string;
  readonly changes?: Partial<FormatCase>;
  /** Returns whether the template's histories can express a script; by default all. */
  readonly tells?: (script: Script) => boolean;
}

/** Selects scripts for formats that do not escape texts between quotes. */
const unescaped = ({ calls }: Script) => !/['\\]/.test(JSON.stringify(calls).replaceAll('\\"', '"'));

const OF_FORMATS: Readonly<Record<string, readonly string[]>> = {
  "Qwen3": ["Qwen-Qwen3-0.6B", "Qwen-QwQ-32B", "MiMo-VL", "Bielik-11B-v3.0-Instruct", "Reka-Edge"],
  "Qwen2.5": [
    "Qwen-Qwen2.5-7B-Instruct",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "ibm-granite-granite-4.0",
    "ibm-granite-granite-4.1",
  ],
  "Llama 3.2": ["meta-llama-Llama-3.2-3B-Instruct"],
  "Llama 3 with its tag": ["meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.3-70B-Instruct"],
  "Qwen3-Coder": ["Qwen3-Coder", "Qwen3.5-4B", "StepFun3.5-Flash", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"],
  "Seed-OSS": ["ByteDance-Seed-OSS"],
  "Mistral's list": ["mistralai-Mistral-Nemo-Instruct-2407"],
  "Mistral's names": ["mistralai-Ministral-3-14B-Reasoning-2512", "unsloth-mistral-Devstral-Small-2507"],
  "Mistral's names and ids": ["Mistral-Small-3.2-24B-Instruct-2506"],
  "gpt-oss": ["openai-gpt-oss-120b"],
  "Gemma 4": ["google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"],
  "LFM2": ["LFM2-8B-A1B"],
  "LFM2.5": ["LFM2.5-Instruct"],
  "Granite 3": ["ibm-granite-granite-3.3-2B-Instruct"],
  "Nemotron Nano 2": ["NVIDIA-Nemotron-Nano-v2"],
  "Phi-4-mini": [PHI],
  "GLM-4.5": ["GLM-4.6", "inclusionai-ling-3.0-flash", "poolside-Laguna-XS-2.1"],
  "DeepSeek R1, without marks in the vocabulary": [
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "llama-cpp-deepseek-r1",
  ],
  "DeepSeek V3.1": ["deepseek-ai-DeepSeek-V3.1"],
  "Kimi K2": ["Kimi-K2-Instruct", "Kimi-K2-Thinking", "moonshotai-Kimi-K2"],
  "Command R7B": ["CohereForAI-c4ai-command-r7b-12-2024-tool_use"],
  "MiniMax M2": ["MiniMax-M2"],
  "DeepSeek V3.2": ["deepseek-ai-DeepSeek-V3.2"],
  "GLM-4.7": ["GLM-4.7-Flash", "Spark2.5", "poolside-Laguna-S-2.1"],
};

/** Templates with an unsupported format or none; they use the general format. */
const GENERAL = {
  plain: [
    "Apertus-8B-Instruct",
    "GigaChat3-10B-A1.8B",
    "GigaChat3.1-10B-A1.8B",
    "google-gemma-2-2b-it",
    "meetkai-functionary-medium-v3.1",
    "microsoft-Phi-3.5-mini-instruct",
  ],
  thinking: [
    "HuggingFaceTB-SmolLM3-3B",
    "openbmb-MiniCPM5-1B",
  ],
};

/** North uses other markers around content. */
const north: Partial<FormatCase> = {
  parts: {
    control: ["THINKING", "TEXT", "ACTION"].flatMap((name) => [`<|START_${name}|>`, `<|END_${name}|>`]),
  },
  write: cohere("TEXT"),
};

/** Granite puts markers around an answer after thinking. */
const granite: Partial<FormatCase> = {
  thinks: true,
  write: ({ reasoning, content, calls }) => {
    const response = reasoning && content ? `<response>${content}</response>` : content;
    return (reasoning && `<think>${reasoning}</think>\n\n`) +
      caseOf("Granite 3").write({ reasoning: "", content: response, calls });
  },
};

/** DeepSeek V4 uses another name for the block of calls. */
const deepseekV4: Partial<FormatCase> = {
  write: (script) =>
    caseOf("DeepSeek V3.2").write(script).replaceAll("｜DSML｜function_calls>", "｜DSML｜tool_calls>"),
};

export const REAL_TEMPLATES: readonly RealTemplate[] = [
  ...Object.entries(OF_FORMATS).flatMap(([title, names]) => names.map((name) => ({ name, title }))),
  { name: "LFM2.5-8B-A1B", title: "LFM2.5", tells: unescaped },
  { name: "ibm-granite-granite-3.3-2B-Instruct", title: "Granite 3", changes: granite },
  ...GENERAL.plain.map((name) => ({ name, title: "Gemma 3" })),
  ...GENERAL.thinking.map((name) => ({ name, title: "Gemma 3", changes: { thinks: true } })),
  { name: "Cohere2MoE", title: "Command R7B", changes: north },
  { name: "deepseek-ai-DeepSeek-V4", title: "DeepSeek V3.2", changes: deepseekV4 },
];

function caseOf(title: string): FormatCase {
  return FORMAT_CASES.find((form) => form.title === title)!;
}

/** Ends of turns and texts after calls; models have these as control tokens. */
const ENDS = [
  ..."<|im_start|> <|im_end|> <|eot_id|> <|eom_id|> </s> <turn|> <|tool_response> <|end|> <|user|>".split(
    " ",
  ),
  ..."<SPECIAL_11> <SPECIAL_12> <seed:eos> <end_of_turn> <sep> [TOOL_RESULTS] <｜end▁of▁sentence｜>".split(
    " ",
  ),
  ..."<|assistant_end|> <|message_sep|> [e~[ <|role_end|> </assistant> <|observation|> <|END_OF_TURN_TOKEN|>"
    .split(" "),
];

/** A model of the case with a real template. */
export function modelOf(
  { title, changes }: RealTemplate,
  source: string,
): { form: FormatCase; model: TestModel } {
  const form = { ...caseOf(title), ...changes };
  const { control = [], userDefined = [] } = form.parts;
  const ends = ENDS.filter((text) => !control.includes(text) && !userDefined.includes(text));
  return { form, model: testModel({ ...form.parts, template: source, control: [...control, ...ends] }) };
}

/**
 * Returns the template sources by name. `peer`: the folder of node-llama-cpp; if missing, it is downloaded into
 * `folder`.
 */
export async function fetchTemplates(folder: string, peer?: string): Promise<Map<string, string>> {
  const bundle = peer ? join(peer, "node_modules/node-llama-cpp", BUNDLE) : await fetchBundle(folder);
  const source = join(folder, "llama.cpp");
  await run("git", ["clone", "--quiet", "--no-checkout", bundle, source], folder);
  await run("git", ["checkout", "--quiet", "HEAD", "--", FOLDER], source);
  const templates = new Map([[PHI, await fetchPhi(folder)]]);
  for await (const { name } of Deno.readDir(join(source, FOLDER))) {
    if (!name.endsWith(".jinja")) continue;
    templates.set(name.slice(0, -".jinja".length), await Deno.readTextFile(join(source, FOLDER, name)));
  }
  return templates;
}

/** Downloads the package without its dependencies. */
async function fetchBundle(folder: string): Promise<string> {
  const file = (await run("npm", ["pack", "--silent", PEER[0]], folder)).trim();
  await run("tar", ["-xzf", file, `package/${BUNDLE}`], folder);
  return join(folder, "package", BUNDLE);
}

async function fetchPhi(folder: string): Promise<string> {
  const to = join(folder, "guidance");
  const options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--target", to];
  await run("python3", ["-m", "pip", "install", ...options, GUIDANCE.package], folder);
  const python = await Deno.readTextFile(join(to, GUIDANCE.file));
  const [, text] = new RegExp(`^${GUIDANCE.name} = ("(?:[^"\\\\]|\\\\.)*")$`, "m").exec(python) ?? [];
  if (text === undefined) throw new Error(`${GUIDANCE.package} has no ${GUIDANCE.name}`);
  return JSON.parse(text);
}
