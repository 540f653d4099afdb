import { type ChatPart, tryJson } from "../../../engine/mod.ts";
import type { ItemStatus, OutputItem } from "./answer.ts";
import { type CalledTool, SHELL } from "./called_tool.ts";
import type { ItemIds, OpenItem, Said } from "./open_item.ts";

/** Returns the item of a call in its tool's format. */
export function openCall(ids: ItemIds, callId: string, tool: CalledTool): OpenItem {
  if (tool.type === "custom") return new OpenCustomCall(ids.next("ctc"), callId, tool);
  return tool.type === SHELL
    ? new OpenShellCall(ids.next("lsh"), callId)
    : new OpenFunctionCall(ids.next("fc"), callId, tool);
}

/** Collects the arguments of a tool call, which the model writes as JSON. */
abstract class OpenCall implements OpenItem {
  protected json = "";

  constructor(readonly id: string, protected readonly callId: string) {}

  takes({ type }: ChatPart): boolean {
    return type === "arguments";
  }

  begun(): OutputItem {
    return this.item("in_progress");
  }

  begin(): Said[] {
    return [];
  }

  add(part: ChatPart): Said[] {
    if (part.type !== "arguments") return []; // the item already has the name
    this.json += part.text;
    return this.read(part.text);
  }

  abstract end(): Said[];
  abstract item(status: ItemStatus): OutputItem;
  /** Returns the events of the next text of the arguments. */
  protected abstract read(text: string): Said[];
}

class OpenFunctionCall extends OpenCall {
  constructor(id: string, callId: string, private readonly tool: CalledTool) {
    super(id, callId);
  }

  protected read(delta: string): Said[] {
    return [{ type: "response.function_call_arguments.delta", delta }];
  }

  end(): Said[] {
    return [{
      type: "response.function_call_arguments.done",
      name: this.tool.name,
      arguments: this.json,
    }];
  }

  item(status: ItemStatus): OutputItem {
    const { id, callId: call_id, json } = this;
    return { type: "function_call", id, call_id, ...nameOf(this.tool), arguments: json, status };
  }
}

class OpenCustomCall extends OpenCall {
  readonly #reader = new InputReader();
  #input = "";

  constructor(id: string, callId: string, private readonly tool: CalledTool) {
    super(id, callId);
  }

  protected read(text: string): Said[] {
    return this.#add(this.#reader.read(text));
  }

  end(): Said[] {
    const { input } = Object(tryJson(this.json));
    // The reader holds back possible halves of a character.
    const rest = typeof input === "string" && input.startsWith(this.#input)
      ? input.slice(this.#input.length)
      : "";
    const said = this.#add(rest);
    return [...said, { type: "response.custom_tool_call_input.done", input: this.#input }];
  }

  item(status: ItemStatus): OutputItem {
    const { id, callId: call_id } = this;
    return { type: "custom_tool_call", id, call_id, ...nameOf(this.tool), input: this.#input, status };
  }

  #add(delta: string): Said[] {
    this.#input += delta;
    return delta === "" ? [] : [{ type: "response.custom_tool_call_input.delta", delta }];
  }
}

/** Pattern of complete escapes and characters of a JSON string, with both halves of an escaped surrogate pair. */
const WHOLE =
  /^(?:[^"\\]|\\(?:["\\/bfnrt]|u(?![dD][89abAB])[\da-fA-F]{4}|u[dD][89abAB][\da-fA-F]{2}\\u[\da-fA-F]{4}))*/;

/** Reads the text in `{"input": "…"}` while the model writes it. */
class InputReader {
  #rest = "";
  #isInText = false;

  /** Returns the characters of the input that are now complete. */
  read(text: string): string {
    this.#rest += text;
    if (!this.#isInText) {
      const head = /^\s*\{\s*"input"\s*:\s*"/.exec(this.#rest);
      if (!head) return "";
      this.#isInText = true;
      this.#rest = this.#rest.slice(head[0].length);
    }
    const [whole] = WHOLE.exec(this.#rest)!;
    this.#rest = this.#rest.slice(whole.length);
    const read = tryJson(`"${whole}"`);
    return typeof read === "string" ? read : "";
  }
}

class OpenShellCall extends OpenCall {
  protected read(): Said[] {
    return [];
  }

  end(): Said[] {
    return [];
  }

  item(status: ItemStatus): OutputItem {
    const { id, callId: call_id } = this;
    const { command, working_directory, timeout_ms } = Object(tryJson(this.json));
    const action = {
      type: "exec" as const,
      command: Array.isArray(command) ? command.map(String) : [],
      env: {},
      ...(typeof working_directory === "string" && { working_directory }),
      ...(typeof timeout_ms === "number" && { timeout_ms }),
    };
    return { type: "local_shell_call", id, call_id, action, status };
  }
}

function nameOf({ name, namespace }: CalledTool) {
  return namespace === undefined ? { name } : { name, namespace };
}
