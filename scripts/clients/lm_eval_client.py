"""Tasks for lm-eval, and what its answers must be: lm_eval_client.py prepare|check BASE_URL FOLDER.

`prepare` writes two tasks. Of each row of the first, one choice is what the model itself goes on with, so lm-eval must
find it greedy. `check` compares every answer that lm-eval has logged with what the server says when it is asked directly.
"""

import glob
import json
import math
import pathlib
import sys
import urllib.request
from importlib.metadata import version

from check import check, report, same

SUBJECTS = ["Hello world", "A loop", "The token", "In the end one", "Some words", "If this", "The model", "Every layer"]
CONTEXTS = [subject + rest for subject in SUBJECTS for rest in ("", " is", " and then", ", again")]
ROWS = 6
UNTIL = ["\n\n"]
OUTPUT_TOKENS = 12

CHOICE = """task: tiny_choice
dataset_path: json
dataset_kwargs: {{ data_files: {{ test: {rows} }} }}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
target_delimiter: ""
metric_list: [{{ metric: acc }}]
"""

TEXT = """task: tiny_text
dataset_path: json
dataset_kwargs: {{ data_files: {{ test: {rows} }} }}
test_split: test
output_type: generate_until
doc_to_text: "{{{{context}}}}"
doc_to_target: ""
generation_kwargs: {{ until: {until}, max_gen_toks: {tokens} }}
metric_list: [{{ metric: exact_match }}]
"""


def ask(base, path, body):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def tokenize(base, text):
    return ask(base, "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]


def complete(base, **body):
    return ask(base, "/v1/completions", {"model": "tiny", "temperature": 0, **body})["choices"][0]


def prepare(base, folder):
    """Rows whose greedy text is read as the tokens that were made, so that the choice is exactly those tokens."""
    rows = []
    for context in CONTEXTS:
        for tokens in (3, 2, 1):
            made = complete(base, prompt=context, max_tokens=tokens)["text"]
            before, whole = tokenize(base, context), tokenize(base, context + made)
            # Text need not be read as the tokens it was made of: bytes that are no character, or a shorter way to say it.
            if "\ufffd" in made or whole[: len(before)] != before or len(whole) != len(before) + tokens:
                continue
            if complete(base, prompt=before, max_tokens=tokens)["text"] == made:
                rows.append({"context": context, "choices": [" world", made, "e"], "gold": 1})
                break
    check(len(rows) >= ROWS, f"the model goes on with text in at least {ROWS} rows", rows)
    rows = rows[:ROWS]
    tasks = folder / "tasks"
    tasks.mkdir()
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tasks / "tiny_choice.yaml").write_text(CHOICE.format(rows=file))
    until = json.dumps(UNTIL)
    (tasks / "tiny_text.yaml").write_text(TEXT.format(rows=file, until=until, tokens=OUTPUT_TOKENS))


def samples(folder, task):
    files = glob.glob(str(folder / "out" / "**" / f"samples_{task}_*.jsonl"), recursive=True)
    same(len(files), 1, f"lm-eval has logged {task}")
    return [json.loads(line) for line in pathlib.Path(files[0]).read_text().splitlines()]


def check_all(base, folder):
    rows = (folder / "rows.jsonl").read_text().splitlines()
    choices = samples(folder, "tiny_choice")
    same(len(choices), len(rows), "every row has its choices")
    for sample in choices:
        for index, answer in enumerate(sample["resps"]):
            # A pair of a number and a truth value, as text or as themselves.
            value, greedy = (json.loads(str(part).lower()) for part in answer[0])
            asked = sample["arguments"][f"gen_args_{index}"]
            context, made = asked["arg_0"], asked["arg_1"]
            before, whole = tokenize(base, context), tokenize(base, context + made)
            told = complete(base, prompt=whole, max_tokens=1, logprobs=1, echo=True)["logprobs"]["token_logprobs"]
            same(len(told), len(whole) + 1, "each token of the prompt and the one behind it is told")
            expected = math.fsum(told[len(before) : len(whole)])
            check(
                math.isclose(value, expected, rel_tol=1e-6), "a log-likelihood is what the server says", value, expected
            )
            check(greedy or index != sample["doc"]["gold"], "what the model itself says is greedy", sample)
    check(any(json.loads(str(each[0][1]).lower()) is False for each in choices[0]["resps"]), "and other text is not")

    texts = samples(folder, "tiny_text")
    same(len(texts), len(rows), "every row has its text")
    for sample in texts:
        context = sample["arguments"]["gen_args_0"]["arg_0"]
        stop = [*UNTIL, "<|im_end|>"]
        own = complete(base, prompt=context, max_tokens=OUTPUT_TOKENS, stop=stop, seed=1234)["text"]
        same(sample["resps"][0][0], own, "a text is what the server says")
    check(any(sample["resps"][0][0] for sample in texts), "some text was made")
    report(f"lm-eval {version('lm_eval')}, {len(choices)} rows of choices and {len(texts)} of text")


command, base, folder = sys.argv[1:]
{"prepare": prepare, "check": check_all}[command](base, pathlib.Path(folder))
