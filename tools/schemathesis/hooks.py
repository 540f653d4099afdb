"""What JSON Schema cannot say of compy's API, and what keeps a run short."""

import schemathesis

MAX_TOKENS = 4

# Refusals of requests that follow the document, all of them told there in words: (code, param).
EXPECTED = {
    ("context_length_exceeded", None),  # the prompt is longer than the model's context
    ("chat_template_error", "messages"),  # the model's template refuses the conversation
    ("unsupported_parameter", "best_of"),  # it is neither 1 nor n
    ("invalid_value", "prompt"),  # prompts x n are more than 128 answers
    ("invalid_value", "after"),  # no entry of the list has this id
}


@schemathesis.hook
def filter_failure(context, failure, case, response):
    if type(failure).__name__ != "RejectedPositiveData" or response.status_code != 400:
        return True
    error = response.json()["error"]
    return (error["code"], error["param"]) not in EXPECTED


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
