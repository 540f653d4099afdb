"""What JSON Schema cannot say of compy's API, and what keeps a run short."""

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


def answers(body):
    return body.get("n") or 1


# Refusals of requests that follow the document, each told there in words, and when they are right: by (code, param).
EXPECTED = {
    # The prompt is longer than the model's context.
    ("context_length_exceeded", None): lambda body: size(body.get("messages", body.get("prompt"))) >= LONG_PROMPT,
    # The model's template refuses the order of the roles.
    ("chat_template_error", "messages"): lambda body: "messages" in body,
    # It is neither 1 nor n.
    ("unsupported_parameter", "best_of"): lambda body: body["best_of"] not in (1, answers(body)),
    # It names no tool of the request.
    ("invalid_value", "tool_choice.function.name"): lambda body: "tool_choice" in body,
    ("invalid_value", "prompt"): lambda body: prompts(body) * answers(body) > MAX_ANSWERS,
}


# A field beside another that it cannot go with; a schema or grammar that is none, or that no answer satisfies.
ABOUT_A_FIELD = {"conflicting_parameters", "invalid_constraint"}


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether it is one."""
    if type(failure).__name__ != "RejectedPositiveData" or response.status_code != 400:
        return True
    error = response.json()["error"]
    if (error["code"], error["param"]) == ("invalid_value", "after"):
        return "after" not in (case.query or {})  # no entry of the list has this id
    if error["code"] in ABOUT_A_FIELD:
        return not isinstance(case.body, dict) or error["param"].split(".")[0] not in case.body
    is_right = EXPECTED.get((error["code"], error["param"]))
    return is_right is None or not isinstance(case.body, dict) or not is_right(case.body)


@schemathesis.hook
def map_case(context, case):
    """Short answers: what is generated is not tested here."""
    body = case.body
    if not isinstance(body, dict) or not ({"messages", "prompt"} & body.keys()):
        return case
    for name in ("max_tokens", "max_completion_tokens"):
        value = body.get(name)
        if isinstance(value, int) and MAX_TOKENS < value < 2**31:
            body[name] = MAX_TOKENS
    if "messages" in body and body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        body["max_tokens"] = MAX_TOKENS
    return case
