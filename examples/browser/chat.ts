/// <reference lib="dom" />
/**
 * Runs a model on a web page, in WebAssembly. `deno task example:browser` builds a folder for any static server.
 */
import { loadModel } from "../../lib/model.ts";

const element = <E extends HTMLElement>(selector: string) => document.querySelector<E>(selector)!;
const [state, answer] = [element("#state"), element("#answer")];
const [question, button] = [element<HTMLInputElement>("#question"), element<HTMLButtonElement>("button")];

try {
  const model = await loadModel(await (await fetch("./demo.gguf")).blob(), {
    id: "demo",
    onProgress: ({ done, total }) =>
      state.textContent = `Loading the model: ${(100 * done / total).toFixed()} %`,
  });
  const { id, backend: { device, threads } } = model.info;
  state.textContent = `${id}: ${device}, ${threads} thread${threads === 1 ? "" : "s"}`;
  button.disabled = false;
  element("#form").onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    answer.textContent = "";
    for await (const { text } of model.chat(question.value, { temperature: 0, maxTokens: 60 })) {
      answer.textContent += text ?? "";
    }
    button.disabled = false;
  };
} catch (error) {
  state.textContent = String(error);
}
