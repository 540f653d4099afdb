/** Sends a prompt that is too long through npm's pi-ai: `node pi_overflow.js FOLDER BASE MODEL`. Prints an outcome per API as JSON. */

import process from "node:process";

const [folder, base, id] = process.argv.slice(2);
const { completeSimple, isContextOverflow } = await import(
  `${folder}/node_modules/@mariozechner/pi-ai/dist/index.js`
);

const APIS = { "openai-completions": "/v1", "openai-responses": "/v1", "anthropic-messages": "" };
const content = "word ".repeat(1000);
const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };

const outcomes = [];
for (const [api, path] of Object.entries(APIS)) {
  const limits = { contextWindow: 512, maxTokens: 64 };
  const model = {
    id,
    name: id,
    api,
    provider: "compy",
    baseUrl: base + path,
    reasoning: false,
    input: ["text"],
    cost,
  };
  const messages = [{ role: "user", content, timestamp: 0 }];
  const answer = await completeSimple({ ...model, ...limits }, { messages }, { apiKey: "none" });
  outcomes.push({ api, overflow: isContextOverflow(answer), message: answer.errorMessage });
}
process.stdout.write(JSON.stringify(outcomes));
