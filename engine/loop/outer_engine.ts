import type { Engine, EngineState } from "../api/engine.ts";
import type { EngineError } from "../api/errors.ts";
import type { ChatMessage, ChatTemplateOptions } from "../tokenizer/types.ts";
import { EngineLife } from "./engine_life.ts";

/** Base of engines that send requests to other engines of one model. One of these engines, `inner`, describes the model. */
export abstract class OuterEngine {
  protected readonly life = new EngineLife("ready");
  protected abstract readonly inner: Engine;

  get model() {
    return this.inner.model;
  }

  get tokenizer() {
    return this.inner.tokenizer;
  }

  get chatTemplate() {
    return this.inner.chatTemplate;
  }

  get chatForm() {
    return this.inner.chatForm;
  }

  get state(): EngineState {
    return this.life.state;
  }

  get failure(): EngineError | undefined {
    return this.life.failure;
  }

  onState(listener: (state: EngineState) => void): () => void {
    return this.life.onState(listener);
  }

  encodePrompt(text: string): number[] {
    return this.inner.encodePrompt(text);
  }

  encodeChat(messages: readonly ChatMessage[], options?: ChatTemplateOptions): number[] {
    return this.inner.encodeChat(messages, options);
  }

  encodePair(query: string, document: string): number[] {
    return this.inner.encodePair(query, document);
  }
}
