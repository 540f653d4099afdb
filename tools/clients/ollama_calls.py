"""Calls of Ollama's client in Python: `python ollama_calls.py BASE MODEL` prints an outcome a line as JSON."""

import json
import sys

import ollama

from outcomes import joined, run, same

BASE, MODEL = sys.argv[1:]
MESSAGES = [{"role": "user", "content": "How is the weather in Köln?"}]
# Short, and the same every time.
STEADY = {"model": MODEL, "options": {"temperature": 0, "num_predict": 48}}
MOOD = {
    "type": "object",
    "properties": {"mood": {"type": "string", "enum": ["calm", "wild"]}, "sure": {"type": "boolean"}},
    "required": ["mood", "sure"],
    "additionalProperties": False,
}

client = ollama.Client(host=BASE)


def get_weather(city: str) -> str:
    """Get the weather in a city.

    Args:
        city: Name of the city
    """
    return f"Rain in {city}"


def chat():
    request = {**STEADY, "messages": MESSAGES}
    whole = client.chat(**request)
    parts = list(client.chat(**request, stream=True))
    same(joined(part.message.content for part in parts), whole.message.content)
    same(joined(part.message.thinking for part in parts), whole.message.thinking or "")
    last = parts[-1]
    same((last.done, last.done_reason, last.eval_count), (True, whole.done_reason, whole.eval_count))
    assert whole.total_duration > 0 and whole.prompt_eval_count > 0


def chat_thinking():
    request = {"model": MODEL, "messages": MESSAGES, "options": {"temperature": 0, "num_predict": 12}}
    assert client.chat(**request, think=True).message.thinking
    assert client.chat(**request, think=False).message.thinking is None


def chat_form():
    answer = client.chat(model=MODEL, messages=MESSAGES, think=False, format=MOOD, options={"temperature": 0})
    assert json.loads(answer.message.content)["mood"] in ("calm", "wild")


def chat_tools():
    answer = client.chat(**STEADY, messages=MESSAGES, tools=[get_weather], think=False)
    call = {"function": {"name": "get_weather", "arguments": {"city": "Köln"}}}
    history = [*MESSAGES, {"role": "assistant", "tool_calls": [call]}]
    history.append({"role": "tool", "tool_name": "get_weather", "content": get_weather("Köln")})
    further = client.chat(**STEADY, messages=history, tools=[get_weather], think=False)
    assert further.prompt_eval_count > answer.prompt_eval_count


def generate():
    request = {**STEADY, "prompt": "Once", "raw": True}
    parts = list(client.generate(**request, stream=True))
    same(joined(part.response for part in parts), client.generate(**request).response)
    same(client.generate(model=MODEL).done_reason, "load")


def embed():
    answer = client.embed(model=MODEL, input=["a", "b"])
    same(len(answer.embeddings), 2)
    same(list(client.embeddings(model=MODEL, prompt="a").embedding), list(answer.embeddings[0]))


def models():
    same([model.model for model in client.list().models], [f"{MODEL}:latest"])
    same([model.model for model in client.ps().models], [f"{MODEL}:latest"])
    shown = client.show(f"{MODEL}:latest")
    assert "thinking" in shown.capabilities and shown.modelinfo["general.architecture"]


def refusals():
    for call in (lambda: client.show("none"), lambda: client.chat(model=MODEL, options={"num_ctx": 10**6}, messages=MESSAGES)):
        try:
            call()
            raise AssertionError("It was not refused")
        except ollama.ResponseError as error:
            assert error.status_code in (400, 404) and error.error
    try:
        client.pull("llama3.2")
        raise AssertionError("It was not refused")
    except ollama.ResponseError as error:
        same(error.status_code, 403)


run({
    "ollama: chat, whole and streamed": chat,
    "ollama: chat with and without thinking": chat_thinking,
    "ollama: chat in a form": chat_form,
    "ollama: chat with tools, whose results go back": chat_tools,
    "ollama: generate, whole and streamed": generate,
    "ollama: embeddings": embed,
    "ollama: models": models,
    "ollama: refusals": refusals,
})
