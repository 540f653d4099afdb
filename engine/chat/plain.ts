import type { ChatTemplate } from "../tokenizer/types.ts";
import type { ChatForm, ChatPart, ChatReader } from "./types.ts";

class ChatTemplateError extends Error {
  override name = "ChatTemplateError";
}

/** The form of models that neither think nor call: an answer is all content. */
export function plainChatForm(template: ChatTemplate): ChatForm {
  return {
    toolFormat: "none",
    plan({ messages, tools = [], toolChoice, variables, continueFinal, constraint, atMost }) {
      if (tools.length > 0 && toolChoice !== "none") throw new ChatTemplateError("The model takes no tools");
      if (continueFinal) throw new ChatTemplateError("The model continues no message");
      const prompt = template.encode(messages, { variables: { ...variables }, atMost });
      return { prompt, constraint, markers: new Set(), reader: () => new PlainReader() };
    },
  };
}

class PlainReader implements ChatReader {
  readonly thinking = false;

  text(text: string): ChatPart[] {
    return text === "" ? [] : [{ type: "content", text }];
  }

  marker(): ChatPart[] {
    return [];
  }

  end(): ChatPart[] {
    return [];
  }
}
