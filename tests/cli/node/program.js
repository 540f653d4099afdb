// A user's program for Node that uses every function of the library there. Prints the results as JSON.
import { batchStatus, createServer, loadModel, runBatch } from "compy";
import { existsSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import process from "node:process";

const PERSON = {
  type: "object",
  properties: { name: { type: "string", maxLength: 12 }, age: { type: "integer", minimum: 0, maximum: 130 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const DIGIT = { type: "integer", minimum: 0, maximum: 9 };
const ADD = {
  name: "add",
  parameters: {
    type: "object",
    properties: { a: DIGIT, b: DIGIT },
    required: ["a", "b"],
    additionalProperties: false,
  },
};

const ACTIONS = {
  /** One answer of each kind. */
  async answers() {
    const warnings = [];
    const model = await loadModel(undefined, { onWarning: (message) => warnings.push(message) });
    const { text } = await model.chat("Who are you?", { temperature: 0 }).answer();
    const { vectors } = await model.embed(["a fox in the snow", "a hare in the grass"]);
    const result = { warnings, backend: model.info.backend.name, text, vectors };
    if (warnings.length === 0) {
      result.json = (await model.chat("Ann is five.", { schema: PERSON, seed: 1 }).answer()).json;
      const call = { tools: [ADD], toolChoice: "required", parallelToolCalls: false, seed: 1 };
      result.toolCalls = (await model.chat("1 + 2?", call).answer()).toolCalls;
    }
    await model.close();
    return result;
  },

  /** A job, the same job again, and its state. */
  async batch() {
    const lines = ["Who are you?", "What is a hen?"].map((content, i) => ({
      custom_id: `q${i}`,
      method: "POST",
      url: "/v1/chat/completions",
      body: { messages: [{ role: "user", content }], temperature: 0, max_tokens: 20 },
    }));
    const job = { input: "in.jsonl", output: "out.jsonl" };
    writeFileSync(job.input, lines.map((line) => JSON.stringify(line)).join("\n"));
    const runs = await Promise.all(
      [1, 2].map(() => runBatch(() => loadModel(), job).catch(({ code }) => code)),
    );
    const again = await runBatch(() => loadModel(), job);
    writeFileSync("towns.csv", "town\nOslo\nBergen\n");
    const table = { prompt: "Where is {town}?", maxTokens: 4 };
    await runBatch(() => loadModel(), { input: "towns.csv", output: "answers.csv", table });
    return {
      runs,
      again: again.state,
      status: await batchStatus(job.output),
      answers: readFileSync(job.output, "utf8"),
      table: readFileSync("answers.csv", "utf8"),
    };
  },

  /** One signal ends the answers of two models; their other requests continue. */
  async abort() {
    const models = await Promise.all(["a", "b"].map((id) => loadModel(undefined, { id })));
    const stop = new AbortController();
    const reason = new Error("enough");
    const endless = models.map((model) =>
      model.generate("Once", { ignoreEos: true, maxTokens: 400, signal: stop.signal }).answer()
    );
    const others = models.map((model) => model.generate("Once", { ignoreEos: true, maxTokens: 60 }).answer());
    setTimeout(() => stop.abort(reason), 30);
    const ended = await Promise.allSettled(endless);
    const lengths = (await Promise.all(others)).map(({ usage }) => usage.completionTokens);
    await Promise.all(models.map((model) => model.close()));
    return { aborted: ended.map((end) => end.reason === reason), lengths };
  },

  /** More constrained steps at once than there are threads for calls. */
  async crowd() {
    const models = await Promise.all(
      [0, 1, 2, 3, 4].map((i) => loadModel(undefined, { id: `m${i}`, parallel: 16, threads: 1 })),
    );
    const ask = (model, seed) => model.chat("Ann is five.", { schema: PERSON, seed }).answer();
    const crowd = await Promise.all(
      models.map((model) => Promise.all(Array.from({ length: 16 }, (_, i) => ask(model, i)))),
    );
    const alone = await ask(models[0], 7);
    await Promise.all(models.map((model) => model.close()));
    return { jsons: crowd.map((answers) => answers.map(({ json }) => json)), alone: alone.json };
  },

  async server() {
    const model = await loadModel();
    const server = await createServer(model);
    const body = JSON.stringify({ messages: [{ role: "user", content: "Who are you?" }], temperature: 0 });
    const headers = { "content-type": "application/json" };
    const response = await server.fetch(
      new Request("http://localhost/v1/chat/completions", { method: "POST", headers, body }),
    );
    const page = await server.fetch(new Request("http://localhost/"));
    let listening;
    try {
      server.listen();
    } catch ({ code, message }) {
      listening = { code, message };
    }
    const stored = await createServer(model, { data: "data" }).catch(({ code }) => code);
    const text = (await response.json()).choices[0].message.content;
    await server.close();
    await model.close();
    return { text, page: page.status, listening, stored };
  },

  /** Holds the lock of a job until a file says that it may end. */
  async hold() {
    let held = false;
    const onProgress = () => {
      if (held) return;
      held = true;
      writeSync(1, "held\n");
      const word = new Int32Array(new SharedArrayBuffer(4));
      while (!existsSync("end")) Atomics.wait(word, 0, 0, 20);
    };
    return (await runBatch(() => loadModel(), { input: "in.jsonl", output: "held.jsonl", onProgress })).state;
  },

  batchWithoutLock: async () =>
    (await runBatch(() => loadModel(), { input: "in.jsonl", output: "out.jsonl" }).catch((e) => e)).message,
};

const result = await ACTIONS[process.argv[2]]();
process.stdout.write(JSON.stringify(result));
