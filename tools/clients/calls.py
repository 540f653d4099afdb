"""Calls of the clients in Python: `python calls.py BASE MODEL` prints an outcome a line as JSON, for tests/server/clients_test.ts."""

import io
import json
import os
import sys
import time

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched from elsewhere

import litellm
import openai
import pydantic
from typing import Literal

from outcomes import joined, run, same

litellm.suppress_debug_info = True

BASE, MODEL = sys.argv[1:]
QUESTION = "How is the weather in Köln?"
MESSAGES = [{"role": "user", "content": QUESTION}]
# Short, and the same every time.
STEADY = {"temperature": 0, "extra_body": {"thinking_budget_tokens": 8}}
PLAIN = {"temperature": 0, "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}

client = openai.OpenAI(base_url=f"{BASE}/v1", api_key="none", max_retries=0)
LITELLM = {"model": f"openai/{MODEL}", "api_base": f"{BASE}/v1", "api_key": "none", "num_retries": 0}


class Mood(pydantic.BaseModel):
    mood: Literal["calm", "wild"]
    sure: bool


SCHEMA = {**Mood.model_json_schema(), "additionalProperties": False}
CHAT_TOOL = {"type": "function", "function": {"name": "set_mood", "parameters": SCHEMA}}
TOOL = {"type": "function", "name": "set_mood", "parameters": SCHEMA, "strict": True}


def chat(create):
    request = {"messages": MESSAGES, "max_tokens": 48, **STEADY}
    whole = create(**request).choices[0]
    chunks = [chunk.choices[0] for chunk in create(**request, stream=True) if chunk.choices]
    same(joined(choice.delta.content for choice in chunks), whole.message.content or "")
    thought = joined(getattr(choice.delta, "reasoning_content", None) for choice in chunks)
    same(thought, whole.message.reasoning_content)
    assert thought != ""
    same([choice.finish_reason for choice in chunks if choice.finish_reason][-1], whole.finish_reason)


def chat_tools(create):
    request = {
        "messages": MESSAGES, "tools": [CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False, **PLAIN,
    }
    message = create(**request).choices[0].message
    [call] = message.tool_calls
    Mood.model_validate_json(call.function.arguments)
    chunks = [chunk.choices[0].delta for chunk in create(**request, stream=True) if chunk.choices]
    streamed = joined(part.function.arguments for delta in chunks for part in delta.tool_calls or [])
    same(streamed, call.function.arguments)
    answered = [*MESSAGES, message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    assert create(**{**request, "messages": answered}).choices[0].message.tool_calls


def chat_form(create):
    form = {"type": "json_schema", "json_schema": {"name": "mood", "schema": SCHEMA, "strict": True}}
    request = {"messages": MESSAGES, "response_format": form, **PLAIN}
    whole = create(**request).choices[0].message.content
    Mood.model_validate_json(whole)
    chunks = [chunk.choices[0].delta.content for chunk in create(**request, stream=True) if chunk.choices]
    same(joined(chunks), whole)


def text_of(response):
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return joined(part.text for part in parts)


def responses(create):
    request = {"input": QUESTION, "instructions": "Be kind", "max_output_tokens": 48, **STEADY}
    whole = create(**request)
    events = list(create(**request, stream=True))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    same(joined(deltas), text_of(whole))
    assert events[-1].type in ("response.completed", "response.incomplete"), events[-1].type
    assert whole.usage.output_tokens > 0


def responses_tools(create):
    request = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, **PLAIN}
    answer = create(input=QUESTION, **request)
    [call] = [item for item in answer.output if item.type == "function_call"]
    Mood.model_validate_json(call.arguments)
    spoken = [item.model_dump(exclude_none=True) for item in answer.output]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    events = list(create(input=[*MESSAGES, *spoken, result], stream=True, **request))
    assert [event for event in events if event.type == "response.function_call_arguments.done"]


def openai_chat():
    chat(lambda **request: client.chat.completions.create(model=MODEL, **request))


def openai_chat_form():
    chat_form(lambda **request: client.chat.completions.create(model=MODEL, **request))
    parsed = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Mood, **PLAIN)
    assert isinstance(parsed.choices[0].message.parsed, Mood)


def openai_chat_tools():
    chat_tools(lambda **request: client.chat.completions.create(model=MODEL, **request))


def openai_completions():
    request = {"model": MODEL, "prompt": "Once", "max_tokens": 16, "temperature": 0}
    whole = client.completions.create(**request).choices[0].text
    same(joined(chunk.choices[0].text for chunk in client.completions.create(**request, stream=True)), whole)


def openai_responses():
    responses(lambda **request: client.responses.create(model=MODEL, **request))
    counted = client.responses.input_tokens.count(model=MODEL, input=QUESTION)
    same(counted.input_tokens, client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=1).usage.input_tokens)


def openai_responses_form():
    parsed = client.responses.parse(model=MODEL, input=QUESTION, text_format=Mood, **PLAIN)
    assert isinstance(parsed.output_parsed, Mood)
    with client.responses.stream(model=MODEL, input=QUESTION, text_format=Mood, **PLAIN) as stream:
        stream.until_done()
        same(stream.get_final_response().output_parsed, parsed.output_parsed)


def openai_responses_tools():
    responses_tools(lambda **request: client.responses.create(model=MODEL, **request))


def openai_embeddings():
    texts = [QUESTION, "Hi"]
    packed = client.embeddings.create(model=MODEL, input=texts).data
    plain = client.embeddings.create(model=MODEL, input=texts, encoding_format="float").data
    for one, other in zip(packed, plain, strict=True):
        assert abs(sum(x * x for x in one.embedding) - 1) < 1e-5
        assert max(abs(x - y) for x, y in zip(one.embedding, other.embedding, strict=True)) < 1e-6


def openai_batches():
    for url, body in {
        "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 4},
        "/v1/responses": {"input": QUESTION, "max_output_tokens": 4},
        "/v1/embeddings": {"input": QUESTION},
    }.items():
        lines = [
            json.dumps({"custom_id": name, "method": "POST", "url": url, "body": {"model": MODEL, **body}}) for name in "ab"
        ]
        file = client.files.create(file=("in.jsonl", io.BytesIO("\n".join(lines).encode())), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")
        while batch.status not in ("completed", "failed"):
            time.sleep(0.05)
            batch = client.batches.retrieve(batch.id)
        same((batch.status, batch.request_counts.completed), ("completed", 2))
        answers = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
        same(sorted(answer["custom_id"] for answer in answers), ["a", "b"])
        assert file.id in [listed.id for listed in client.files.list()]
        assert client.files.delete(file.id).deleted


def openai_refusals():
    same([model.id for model in client.models.list()], [MODEL])
    try:
        client.responses.create(model="none", input=QUESTION, stream=True)
        raise AssertionError("It was not refused")
    except openai.NotFoundError as error:
        same(error.code, "model_not_found")


def litellm_chat():
    chat(lambda **request: litellm.completion(**LITELLM, **request))


def litellm_chat_form():
    chat_form(lambda **request: litellm.completion(**LITELLM, **request))


def litellm_chat_tools():
    chat_tools(lambda **request: litellm.completion(**LITELLM, **request))


def litellm_completions():
    request = {**LITELLM, "model": f"text-completion-openai/{MODEL}", "prompt": "Once", "max_tokens": 16, "temperature": 0}
    whole = litellm.text_completion(**request).choices[0].text
    same(joined(chunk.choices[0].text for chunk in litellm.text_completion(**request, stream=True)), whole)


def litellm_responses():
    responses(lambda **request: litellm.responses(**LITELLM, **request))


def litellm_responses_tools():
    responses_tools(lambda **request: litellm.responses(**LITELLM, **request))


def litellm_embeddings():
    answer = litellm.embedding(**LITELLM, input=[QUESTION, "Hi"], encoding_format="float")
    same(len(answer.data), 2)
    assert abs(sum(x * x for x in answer.data[0]["embedding"]) - 1) < 1e-5


def litellm_messages():
    request = {
        "model": f"anthropic/{MODEL}", "api_base": BASE, "api_key": "none", "messages": MESSAGES, "max_tokens": 32,
        "temperature": 0, "num_retries": 0,
    }
    whole = litellm.completion(**request).choices[0].message.content or ""
    chunks = [chunk.choices[0].delta.content for chunk in litellm.completion(**request, stream=True) if chunk.choices]
    same(joined(chunks), whole)


def litellm_refusals():
    try:
        litellm.completion(**{**LITELLM, "model": "openai/none"}, messages=MESSAGES)
        raise AssertionError("It was not refused")
    except litellm.NotFoundError:
        pass


CALLS = {
    "openai: chat, whole and streamed": openai_chat,
    "openai: chat in a form, parsed": openai_chat_form,
    "openai: chat with tools, whose results go back": openai_chat_tools,
    "openai: completions, whole and streamed": openai_completions,
    "openai: responses, whole and streamed": openai_responses,
    "openai: responses in a form, parsed whole and streamed": openai_responses_form,
    "openai: responses with tools, whose results go back": openai_responses_tools,
    "openai: embeddings, as floats and in base64": openai_embeddings,
    "openai: files and batches": openai_batches,
    "openai: models and refusals": openai_refusals,
    "litellm: chat, whole and streamed": litellm_chat,
    "litellm: chat in a form": litellm_chat_form,
    "litellm: chat with tools, whose results go back": litellm_chat_tools,
    "litellm: completions, whole and streamed": litellm_completions,
    "litellm: responses, whole and streamed": litellm_responses,
    "litellm: responses with tools, whose results go back": litellm_responses_tools,
    "litellm: embeddings": litellm_embeddings,
    "litellm: messages, whole and streamed": litellm_messages,
    "litellm: a refusal": litellm_refusals,
}

run(CALLS)
