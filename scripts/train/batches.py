"""Training batches: several questions in a row of 64 tokens, made in worker processes, and windows of English.

Questions in a row do not see each other, and each begins at position 0, as it does when it is served.
"""

import multiprocessing as mp
import random

import numpy as np
import torch

import tasks

LENGTH, ANSWERS, SPARE = 64, 28, 255
END, USER, ASSISTANT = 0, 1, 2
CHAT_SHARE = 0.25


class Encoder:
    """Token ids of task texts: their words from the tokenizer, once, and one token for every other sign."""

    def __init__(self, tokenizer):
        self.tokenizer, self.words = tokenizer, {}

    def __call__(self, text: str) -> list[int]:
        ids, word = [], ""
        for sign in text + "\0":
            if sign.isalpha() or (sign == " " and not word):
                word += sign
                continue
            if word:
                ids += self.of(word)
                word = ""
            if sign == " ":
                word = sign
            elif sign != "\0":
                ids += self.of(sign)
        return ids

    def of(self, word: str) -> list[int]:
        if word not in self.words:
            self.words[word] = self.tokenizer.encode(word).ids
        return self.words[word]


def sequence(encode, prompt: str, answer: str, chat: bool) -> tuple[list[int], int]:
    """Token ids with the end token, and how many of them are the prompt."""
    asked = [USER, *encode(prompt), ASSISTANT] if chat else encode(prompt)
    return [*asked, *encode(answer), END], len(asked)


def pack(encode, r: random.Random, rows: int, question=tasks.training_question) -> dict[str, np.ndarray]:
    """Rows of questions. `of`: which question a token belongs to. `answers`: the inputs whose next token counts."""
    out = {
        "tokens": np.zeros((rows, LENGTH), np.int16),
        "positions": np.zeros((rows, LENGTH), np.uint8),
        "of": np.full((rows, LENGTH), SPARE, np.uint8),
        "decoded": np.zeros((rows, LENGTH), bool),
        "answers": np.full((rows, ANSWERS), SPARE, np.uint8),
    }
    pending = []
    for row in range(rows):
        used = counted = number = 0
        while True:
            while len(pending) < 12:
                pending.append(sequence(encode, *question(r), r.random() < CHAT_SHARE))
            fits = (i for i, (ids, asked) in enumerate(pending)
                    if used + len(ids) <= LENGTH and counted + len(ids) - asked <= ANSWERS)  # fmt: skip
            chosen = next(fits, None)
            if chosen is None:
                break
            ids, asked = pending.pop(chosen)
            size = len(ids)
            out["tokens"][row, used : used + size] = ids
            out["positions"][row, used : used + size] = np.arange(size)
            out["of"][row, used : used + size] = number
            out["decoded"][row, used + asked : used + size] = True
            inputs = range(used + asked - 1, used + size - 1)
            out["answers"][row, counted : counted + len(inputs)] = inputs
            used, counted, number = used + size, counted + len(inputs), number + 1
    return out


def work(queue, tokenizer_file, seed, rows):
    from tokenizers import Tokenizer

    encode, r = Encoder(Tokenizer.from_file(tokenizer_file)), random.Random(seed)
    while True:
        queue.put(pack(encode, r, rows))


class Questions:
    """A pool of rows on the device, renewed by worker processes as fast as they are."""

    def __init__(self, tokenizer_file: str, seed: int, device, workers: int, shard=8192, shards=48):
        # A worker that runs ahead waits for the queue.
        context = mp.get_context("fork")
        self.queue = context.Queue(maxsize=2 * workers)
        self.processes = [
            context.Process(target=work, args=(self.queue, tokenizer_file, seed * 1000 + i, shard), daemon=True)
            for i in range(workers)
        ]
        for process in self.processes:
            process.start()  # Before anything uses the device; workers do not.
        self.shard, self.shards, self.made, self.device = shard, shards, 0, device
        first = self.queue.get()
        self.pool = {
            name: torch.zeros((shards * shard, *array.shape[1:]), dtype=torch.from_numpy(array).dtype, device=device)
            for name, array in first.items()
        }
        self.take(first)

    def take(self, part):
        at = (self.made % self.shards) * self.shard
        for name, array in part.items():
            self.pool[name][at : at + self.shard] = torch.from_numpy(array).to(self.device)
        self.made += 1

    def renew(self):
        """Takes one part in, if there is one. Each copy waits for the device, so this is not for every step."""
        if not self.queue.empty():
            self.take(self.queue.get())

    def batch(self, rows: int, generator):
        filled = min(self.made, self.shards) * self.shard
        chosen = torch.randint(filled, (rows,), device=self.device, generator=generator)
        return {name: array[chosen] for name, array in self.pool.items()}

    def close(self):
        for process in self.processes:
            process.terminate()


def visible(of: torch.Tensor) -> torch.Tensor:
    """Which positions see which: earlier ones of the same question."""
    same = of[:, None, :, None] == of[:, None, None, :]
    return same & torch.ones(of.shape[1], of.shape[1], dtype=torch.bool, device=of.device).tril()


class English:
    """Random windows of text on the device."""

    def __init__(self, ids: np.ndarray, length: int, device):
        self.ids, self.length = torch.from_numpy(ids.astype(np.int16)).to(device), length

    def batch(self, rows: int, generator):
        starts = torch.randint(len(self.ids) - self.length - 1, (rows, 1), device=self.ids.device, generator=generator)
        window = starts + torch.arange(self.length + 1, device=self.ids.device)
        return self.ids[window].long()
