"""What users of LiteLLM do, by each of its three ways to such a server: litellm_client.py BASE_URL KEY."""

import sys
from importlib.metadata import version

import litellm
from check import check, fails, report, same

# The errors below are wanted.
litellm.suppress_debug_info = True
base, key = sys.argv[1:]
MESSAGES = [{"role": "user", "content": "Hello"}]
PLAIN = {"api_base": base, "api_key": key, "temperature": 0, "max_tokens": 8, "num_retries": 0, "max_retries": 0}
ENDLESS = {"ignore_eos": True}


def chat(provider, extra=ENDLESS, **fields):
    return litellm.completion(model=f"{provider}/tiny", messages=MESSAGES, extra_body=extra, **{**PLAIN, **fields})


def complete(extra=ENDLESS, **fields):
    asked = {**PLAIN, "model": "text-completion-openai/tiny", "prompt": "Hello world", **fields}
    return litellm.text_completion(extra_body=extra, **asked)


def chats(provider):
    """A provider's chat; the answer's text."""
    whole = chat(provider)
    text = whole.choices[0].message.content
    same(whole.usage.completion_tokens, 8, f"{provider}: it has as many tokens as were asked for")
    same(whole.choices[0].finish_reason, "length", f"{provider}: it ends with its tokens")
    pieces = [event.choices[0].delta.content or "" for event in chat(provider, stream=True)]
    same("".join(pieces), text, f"{provider}: a stream's text is the whole answer's")
    full = chat(provider, extra={**ENDLESS, "full_depth": True}).usage
    same(full.exit_depths, [4] * 8, f"{provider}: fields of ours go there and back")
    error = fails(litellm.BadRequestError, lambda: chat(provider, max_tokens=0), f"{provider}: a typed error")
    check("max_tokens must be at least 1" in str(error), f"{provider}: the error says what to change", error)
    stranger = {"api_key": "another"}
    fails(litellm.AuthenticationError, lambda: chat(provider, **stranger), f"{provider}: another key opens nothing")
    return text


def completions():
    whole = complete()
    same(whole.usage.completion_tokens, 8, "completions: it has as many tokens as were asked for")
    same(whole.choices[0].finish_reason, "length", "completions: it ends with its tokens")
    pieces = [event.choices[0].text or "" for event in complete(stream=True)]
    same("".join(pieces), whole.choices[0].text, "completions: a stream's text is the whole answer's")
    scored = complete(logprobs=2).choices[0].logprobs
    same(len(scored.token_logprobs), 8, "completions: log-probabilities go along")
    other = {"model": "text-completion-openai/other"}
    fails(litellm.NotFoundError, lambda: complete(**other), "completions: another model is not found")


same(chats("openai"), chats("hosted_vllm"), "both ways give the same answer")
completions()
report(f"litellm {version('litellm')}")
