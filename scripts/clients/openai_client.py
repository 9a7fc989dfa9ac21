"""What users of the openai package do, and what must come of it. The address and the key come from its own environment."""

import openai
from check import check, fails, report, same

client = openai.OpenAI(max_retries=0)
# Greedy and without an end: the same tokens for every way to ask.
PLAIN = {"model": "tiny", "temperature": 0}
ENDLESS = {"ignore_eos": True}
FULL_DEPTH = 4


def complete(prompt, extra=ENDLESS, **fields):
    return client.completions.create(**{**PLAIN, "prompt": prompt, "max_tokens": 12, "extra_body": extra, **fields})


def chat(content, extra=ENDLESS, **fields):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    asked = {**PLAIN, "messages": messages, "max_tokens": 12, "extra_body": extra, **fields}
    return client.chat.completions.create(**asked)


def models():
    same([model.id for model in client.models.list()], ["tiny"], "the server lists its model")


def completions():
    whole = complete("Hello world")
    choice = whole.choices[0]
    same(whole.object, "text_completion", "a completion says what it is")
    check(whole.id.startswith("cmpl-") and whole.created > 0 and whole.model == "tiny", "it names itself", whole)
    same(choice.finish_reason, "length", "it ends with its tokens")
    usage = whole.usage
    same(usage.completion_tokens, 12, "it has as many tokens as were asked for")
    same(usage.total_tokens, usage.prompt_tokens + 12, "the tokens add up")
    same(
        client.completions.create(**PLAIN, prompt="Hi", extra_body=ENDLESS).usage.completion_tokens, 16, "16 by default"
    )

    events = list(complete("Hello world", stream=True, stream_options={"include_usage": True}))
    tokens = [event for event in events if event.choices]
    same(len(tokens), 12, "a stream has one event for each token")
    same("".join(event.choices[0].text for event in tokens), choice.text, "a stream's text is the whole answer's")
    ends = [event.choices[0].finish_reason for event in tokens]
    same(ends, [None] * 11 + ["length"], "the last event says why it is the last")
    same(events[-1].choices, [], "the usage comes behind the tokens")
    same(events[-1].usage.total_tokens, usage.total_tokens, "a stream's usage is the whole answer's")
    check(all(event.choices for event in complete("Hello", stream=True)), "without a wish there is no usage event")

    several = complete(["Hello world", "The quick brown fox"])
    same([each.index for each in several.choices], [0, 1], "each prompt has its answer, in order")
    same(several.choices[0].text, choice.text, "an answer does not depend on what runs beside it")
    drawn = [complete("Hello", temperature=1, seed=7, n=3) for _ in range(2)]
    texts = [[each.text for each in answer.choices] for answer in drawn]
    same(texts[0], texts[1], "the same seed gives the same draws")
    same(len(set(texts[0])), 3, "n answers to one prompt differ")

    middle = choice.text[len(choice.text) // 2 :][:3]
    for stream in (False, True):
        got = complete("Hello world", stop=middle, stream=stream)
        pieces = [each.choices[0] for each in got] if stream else [got.choices[0]]
        same(pieces[-1].finish_reason, "stop", "a stop string ends an answer")
        text = "".join(piece.text for piece in pieces)
        same(text, choice.text[: choice.text.index(middle)], "the text before a stop string is the answer")


def logprobs():
    scored = complete("Hello world", logprobs=3, echo=True)
    told, usage = scored.choices[0].logprobs, scored.usage
    same(len(told.tokens), usage.total_tokens, "echoed and made tokens have log-probabilities")
    same(told.token_logprobs[0], None, "nothing comes before the first token")
    check(all(value < 0 for value in told.token_logprobs[1:]), "all others have one", told.token_logprobs)
    same("".join(told.tokens[: usage.prompt_tokens]), "Hello world", "the prompt's tokens are the prompt")
    check(scored.choices[0].text.startswith("Hello world"), "the answer begins with the prompt")
    made = zip(told.token_logprobs, told.top_logprobs)
    made = list(made)[usage.prompt_tokens :]
    check(all(value == max(top.values()) for value, top in made), "a greedy token is the most probable one", made)

    bare = complete("Hello world", logprobs=1).choices[0].logprobs
    same(bare.tokens, told.tokens[usage.prompt_tokens :], "without an echo only what was made is told")
    same(bare.token_logprobs, told.token_logprobs[usage.prompt_tokens :], "and with the same numbers")

    said = chat("Hello", logprobs=True, top_logprobs=2).choices[0].logprobs.content
    same(len(said), 12, "chat has log-probabilities of each token")
    check(all(len(token.top_logprobs) == 2 for token in said), "and as many others as were asked for", said)
    check(all(token.logprob == token.top_logprobs[0].logprob for token in said), "the greedy one first", said)


def chats():
    whole = chat("Hello")
    message = whole.choices[0].message
    same((whole.object, message.role), ("chat.completion", "assistant"), "a chat says what it is and who speaks")
    same(whole.usage.completion_tokens, 12, "it has as many tokens as were asked for")
    events = list(chat("Hello", stream=True))
    same(events[0].choices[0].delta.role, "assistant", "a stream begins with who speaks")
    text = "".join(event.choices[0].delta.content or "" for event in events)
    same(text, message.content, "a stream's text is the whole answer's")
    same(events[-1].choices[0].finish_reason, "length", "the last event says why it is the last")
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    joined = chat("Hel\nlo").choices[0].message.content
    same(chat(parts).choices[0].message.content, joined, "content may come in parts, which are lines")
    newer = chat("Hello", max_tokens=openai.omit, max_completion_tokens=3)
    same(newer.usage.completion_tokens, 3, "the newer name of max_tokens is known")
    # Read as text a special token is several tokens, read as itself it is one, as a letter is.
    special, letter = (chat(content).usage.prompt_tokens for content in ("<|im_end|>", "x"))
    check(special > letter + 1, "special tokens inside a message stay text", special, letter)


def exits():
    full = complete("Hello world", extra={**ENDLESS, "full_depth": True}).usage
    same(full.exit_depths, [FULL_DEPTH] * 12, "at full depth every token runs all loops")
    same(full.mean_exit_depth, FULL_DEPTH, "the mean is the depths'")
    early = complete("Hello world", extra={**ENDLESS, "exit": {"threshold": 0.5}}).usage
    same(len(early.exit_depths), 12, "every token has its depth")
    check(early.mean_exit_depth < FULL_DEPTH, "a lower threshold lets tokens leave early", early.exit_depths)
    same(early.mean_exit_depth, sum(early.exit_depths) / 12, "the mean is the depths'")
    later = complete("Hello world", extra={**ENDLESS, "exit": {"threshold": 0.5, "min_depth": 3}}).usage
    check(min(later.exit_depths) >= 3, "no token leaves before min_depth", later.exit_depths)


def errors():
    error = fails(openai.NotFoundError, lambda: complete("Hi", model="other"), "another model is not found")
    same((error.code, error.param), ("model_not_found", "model"), "the error says which field")
    for field, call in {
        "prompt": lambda: complete([400]),
        "max_tokens": lambda: complete("Hi", max_tokens=0),
        "temperature": lambda: complete("Hi", temperature=-1),
        "messages": lambda: chat("Hi", messages=[]),
    }.items():
        error = fails(openai.BadRequestError, call, f"a wrong {field} is a bad request")
        same(error.param, field, "the error says which field")
    error = fails(openai.BadRequestError, lambda: complete("Hello " * 3000), "too long a prompt is a bad request")
    check("2048" in error.message, "the error says what the context holds", error.message)
    stranger = client.with_options(api_key="another")
    fails(openai.AuthenticationError, stranger.models.list, "another key opens nothing")
    fails(openai.NotFoundError, lambda: client.embeddings.create(model="tiny", input="Hi"), "there are no embeddings")


for part in (models, completions, logprobs, chats, exits, errors):
    part()
report(f"openai {openai.__version__}")
