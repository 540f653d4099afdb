"""What JSON Schema cannot say of compy's API, and what keeps a run short."""

import json
import re

import schemathesis

MAX_TOKENS = 4

# So many tokens, each of a byte at least, are more than the demo's context beside its template.
LONG_PROMPT = 400
MAX_ANSWERS = 128


def prompts(body):
    """How many answers a completion asks for, but for `n`: a list of token ids is one prompt."""
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and not all(isinstance(part, int) for part in prompt) else 1


def size(value):
    """Bytes and token ids, at most, that a template or the tokenizer gets to see."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, dict):
        return sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list) else 1


def spoken(body):
    """What a prompt is made of."""
    return [body.get(name) or [] for name in ("messages", "prompt", "input", "instructions", "query", "documents")]


def answers(body):
    return body.get("n") or 1


FORMS = (
    "output_config", "output_format", "response_format", "grammar", "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "structured_outputs",
)


def given(body, *names):
    return [name for name in names if body.get(name) not in (None, [], "", {"type": "text"})]


def names(body):
    """Of the tools or functions that a request gives."""
    functions = [tool.get("function", tool) for tool in body.get("tools") or []] + list(body.get("functions") or [])
    return [function.get("name") for function in functions]


def is_schema(text):
    try:
        return isinstance(json.loads(text), (dict, bool))
    except ValueError:
        return False


def last_is_continued(body):
    last = body["messages"][-1]
    calls = [block for block in last.get("content") or [] if isinstance(block, dict) and block["type"] == "tool_use"]
    return last["role"] == "assistant" and not (calls or last.get("tool_calls") or last.get("function_call"))


def has_twice(values):
    return any(values.count(value) > 1 for value in values)


# Refusals of requests that follow the document, each told there in words, and when they are right: by (code, param).
EXPECTED = {
    # The prompt is longer than the model's context.
    ("context_length_exceeded", None): lambda body: size(spoken(body)) >= LONG_PROMPT,
    # The model's template refuses the order of the roles.
    ("chat_template_error", "messages"): lambda body: "messages" in body,
    ("chat_template_error", "input"): lambda body: "input" in body,
    # The demo model ranks nothing; one that ranks gives no embeddings.
    ("not_supported", "model"): lambda body: "documents" in body or "input" in body,
    # It is neither 1 nor n.
    ("unsupported_parameter", "best_of"): lambda body: body["best_of"] not in (1, answers(body)),
    # Which schemas and grammars an answer can follow is more than a schema of schemas can say.
    ("invalid_constraint", "*"): lambda body: given(body, *FORMS, "text", "tools", "functions"),
    # Two parameters that contradict each other, or ask for the same.
    ("conflicting_parameters", "*"): lambda body: len(given(
        body, *FORMS, "text", "tools", "functions", "tool_choice", "thinking", "reasoning_effort", "thinking_budget_tokens",
        "continue_final_message", "add_generation_prompt",
    )) > 1 or ("messages" in body and last_is_continued(body)),
    ("invalid_value", "tools[].function.name"): lambda body: has_twice(names(body)),
    ("invalid_value", "tools[].name"): lambda body: has_twice(names(body)),
    ("invalid_value", "functions[].name"): lambda body: has_twice(names(body)),
    ("invalid_value", "tool_choice"): lambda body: not body.get("tools"),
    ("invalid_value", "tool_choice.function.name"): lambda body: body["tool_choice"]["function"]["name"] not in names(body),
    ("invalid_value", "tool_choice.name"): lambda body: body["tool_choice"]["name"] not in names(body),
    ("invalid_value", "tool_choice.tools[].name"): lambda body: any(
        tool["name"] not in names(body) for tool in body["tool_choice"]["tools"]
    ),
    ("invalid_value", "function_call.name"): lambda body: body["function_call"]["name"] not in names(body),
    ("invalid_value", "messages[].tool_calls[].id"): lambda body: any(
        has_twice([call["id"] for call in message.get("tool_calls") or []]) for message in body["messages"]
    ),
    # The demo model has no tokens for gaps.
    ("infill_not_supported", None): lambda body: "input_prefix" in body,
    # In Anthropic's shape.
    ("invalid_value", "tools[].name"): lambda body: has_twice([tool.get("name") for tool in body["tools"]]),
    ("invalid_value", "tool_choice.name"): lambda body: body["tool_choice"]["name"] not in [
        tool.get("name") for tool in body.get("tools") or []
    ],
    ("invalid_value", "guided_json"): lambda body: not is_schema(body["guided_json"]),
    ("invalid_value", "structured_outputs.json"): lambda body: not is_schema(body["structured_outputs"]["json"]),
    ("invalid_value", "continue_final_message"): lambda body: not last_is_continued(body),
    ("invalid_value", "add_generation_prompt"): lambda body: not last_is_continued(body),
    ("previous_response_not_found", "previous_response_id"): lambda body: body.get("previous_response_id"),
    ("duplicate_custom_id", "requests[].custom_id"): lambda body: has_twice(
        [request["custom_id"] for request in body["requests"]]
    ),
    # A server with one model keeps it.
    ("model_stays", "model"): lambda body: True,
    ("invalid_value", "prompt"): lambda body: prompts(body) * answers(body) > MAX_ANSWERS,
}


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether it is one."""
    if response.status_code == 413:
        return False  # a body that is too large is refused whatever else it is
    if type(failure).__name__ != "RejectedPositiveData" or response.status_code != 400:
        return True
    error = response.json()["error"]
    if error["param"] in ("after", "after_id", "before_id"):
        return error["param"] not in (case.query or {})  # no entry of the list has this id, or there are two cursors
    param = re.sub(r"\[\d+\]", "[]", error["param"] or "") or None
    is_right = EXPECTED.get((error["code"], param)) or EXPECTED.get((error["code"], "*"))
    return is_right is None or not isinstance(case.body, dict) or not is_right(case.body)


@schemathesis.hook
def map_case(context, case):
    """Short answers: what is generated is not tested here."""
    body = case.body
    if not isinstance(body, dict) or not ({"messages", "prompt", "input"} & body.keys()):
        return case
    bounds = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    for name in bounds:
        value = body.get(name)
        if isinstance(value, int) and MAX_TOKENS < value < 2**31:
            body[name] = MAX_TOKENS
    if "messages" in body and body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        body["max_tokens"] = MAX_TOKENS
    if "input" in body and body.get("max_output_tokens") is None:
        body["max_output_tokens"] = MAX_TOKENS
    return case
