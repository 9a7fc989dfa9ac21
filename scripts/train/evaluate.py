"""Accuracy, depth and bits per byte: at every depth, and at every threshold of every gate.

An answer is right if its tokens and the end token are all the greedy choice. Up to its first wrong token a
generated answer is the right one, so one pass over prompt and right answer tells exactly which answers a
decode gets right (`grade`); `generate` decodes token by token, and must agree.
"""

import math

import torch

from batches import END, sequence
from exits import FullDepth, Gate, run
from tasks import is_hard

THRESHOLDS = (
    0.02,
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.45,
    0.5,
    0.55,
    0.6,
    0.65,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    0.95,
    0.98,
    0.99,
    0.995,
    0.998,
)
GATES = ("released", "delayed", "lookahead")


class Questions:
    """Questions as padded rows."""

    def __init__(self, questions, encode, device):
        rows = [sequence(encode, q["prompt"], q["answer"], chat=False) for q in questions]
        self.about, self.length = questions, max(len(ids) for ids, _ in rows)
        self.tokens = torch.tensor([ids + [END] * (self.length - len(ids)) for ids, _ in rows], device=device)
        self.asked = torch.tensor([asked for _, asked in rows], device=device)[:, None]
        self.ends = torch.tensor([len(ids) for ids, _ in rows], device=device)[:, None]
        at = torch.arange(self.length, device=device)
        self.positions = at.expand_as(self.tokens)
        self.decoded = self.positions >= self.asked
        # Inputs whose next token is part of the answer; the first of them is the prompt's last token.
        self.counts = (at >= self.asked - 1) & (at < self.ends - 1)
        self.first = at == self.asked - 1
        self.hard = torch.tensor([is_hard(q["task"], q["difficulty"]) for q in questions], device=device)
        self.kinds = sorted({(q["task"], q["difficulty"]) for q in questions})
        self.kind = torch.tensor([self.kinds.index((q["task"], q["difficulty"])) for q in questions], device=device)


@torch.no_grad()
def grade(model, q: Questions, rule):
    """Which answers are right, and the exits of all positions. A fixed depth holds for prompts, too."""
    right, left = [], []
    for at in range(0, len(q.tokens), 2048):
        part = slice(at, at + 2048)
        tokens, counts = q.tokens[part], q.counts[part]
        decoded = torch.ones_like(q.decoded[part]) if isinstance(rule, FullDepth) else q.decoded[part]
        state, exits = run(model, tokens, q.positions[part], decoded, rule)
        same = model.lm_head(state)[:, :-1].argmax(-1) == tokens[:, 1:]
        right.append((same | ~counts[:, :-1]).all(1))
        left.append(exits)
    return torch.cat(right), torch.cat(left)


def figures(q: Questions, right, left, full):
    """Of one rule. Depths over the tokens that the rule decides, and with the first, which a prompt's pass makes."""
    decided, every = q.counts & ~q.first, q.counts
    depth = lambda mask: left[mask].float().mean().item()
    difference = right.float() - full.float()
    return {
        "accuracy": right.float().mean().item(),
        "hard_accuracy": right[q.hard].float().mean().item(),
        "minus_full_depth": difference.mean().item(),
        "standard_error": difference.std().item() / math.sqrt(len(right)),
        "lost": int((full & ~right).sum()),
        "won": int((right & ~full).sum()),
        "mean_depth": depth(decided),
        "mean_depth_with_first_token": depth(every),
        "exit_shares": [(left[decided] == d).float().mean().item() for d in range(1, 5)],
    }


def by_kind(q: Questions, right, left):
    """Accuracy and mean depth of every task and difficulty."""
    decided, rows = q.counts & ~q.first, []
    for index, (task, difficulty) in enumerate(q.kinds):
        these = q.kind == index
        depths = left[these][decided[these]]
        rows.append(
            {
                "task": task,
                "difficulty": difficulty,
                "questions": int(these.sum()),
                "accuracy": right[these].float().mean().item(),
                "mean_depth": depths.float().mean().item() if len(depths) else None,
            }
        )
    return rows


def sweep(model, q: Questions, gates=GATES, thresholds=THRESHOLDS):
    full, _ = grade(model, q, FullDepth(model.config.total_ut_steps))
    out = []
    for name in gates:
        for threshold in thresholds:
            rule = Gate(name, threshold)
            out.append({"gate": name, "threshold": threshold, **figures(q, *grade(model, q, rule), full)})
    return out


def best(points, gate: str, loss: float):
    """The shallowest point of a gate that loses no more accuracy than that."""
    fine = [p for p in points if p["gate"] == gate and p["minus_full_depth"] >= -loss]
    return min(fine, key=lambda p: p["mean_depth"], default=None)


@torch.no_grad()
def generate(model, prompts: list[list[int]], rule, new_tokens: int, temperature=0.0, generator=None):
    """Token ids and exits of what is decoded. No cache: a longer pass each time gives the same."""
    device = model.lm_head.weight.device
    asked = torch.tensor([len(prompt) for prompt in prompts], device=device)
    tokens = torch.full((len(prompts), max(map(len, prompts)) + new_tokens), END, device=device)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt, device=device)
    positions = torch.arange(tokens.shape[1], device=device).expand_as(tokens)
    decoded = positions >= asked[:, None]
    depths = torch.zeros(len(prompts), new_tokens, dtype=torch.long, device=device)
    open = torch.arange(len(prompts), device=device)  # Rows without an end token.
    for step in range(new_tokens):
        at = asked[open] + step - 1
        end = int(at.max()) + 1
        state, left = run(model, tokens[open, :end], positions[open, :end], decoded[open, :end], rule)
        rows = torch.arange(len(open), device=device)
        logits = model.lm_head(state[rows, at]).float()
        chosen = logits.argmax(-1)
        if temperature:
            chosen = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]
        tokens[open, at + 1] = chosen
        depths[open, step] = left[rows, at].long()
        open = open[chosen != END]
        if not len(open):
            break
    return [tokens[row, n : n + new_tokens].tolist() for row, n in enumerate(asked.tolist())], depths


@torch.no_grad()
def decode_answers(model, q: Questions, rule):
    """Accuracy and depths when answers are decoded for real."""
    right, decided, every = [], [], []
    longest = int((q.ends - q.asked).max())
    for at in range(0, len(q.tokens), 2048):
        part = slice(at, at + 2048)
        lengths = list(zip(q.tokens[part].tolist(), q.asked[part, 0].tolist(), q.ends[part, 0].tolist()))
        got, depths = generate(model, [ids[:asked] for ids, asked, _ in lengths], rule, longest)
        right += [answer[: end - asked] == ids[asked:end] for answer, (ids, asked, end) in zip(got, lengths)]
        decided.append(depths[:, 1:][depths[:, 1:] > 0])
        every.append(depths[depths > 0])
    mean = lambda parts: torch.cat(parts).float().mean().item()
    return {
        "accuracy": sum(right) / len(right),
        "mean_depth": mean(decided),
        "mean_depth_with_first_token": mean(every),
    }


@torch.no_grad()
def bits_per_byte(model, ids: torch.Tensor, size: int, rule, length=256, prompt=32):
    """On whole windows of held-out text, each with a prompt of some tokens that count, too, at full depth."""
    windows = (len(ids) - 1) // length
    inputs = ids[: windows * length].view(windows, length)
    targets = ids[1 : windows * length + 1].view(windows, length)
    positions = torch.arange(length, device=ids.device).expand(512, -1)
    nats, depths = 0.0, []
    for at in range(0, windows, 512):
        tokens = inputs[at : at + 512]
        here = positions[: len(tokens)]
        decoded = here >= (0 if isinstance(rule, FullDepth) else prompt)
        state, left = run(model, tokens, here, decoded, rule)
        logits = model.lm_head(state).float()
        nats += torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets[at : at + 512].flatten(), reduction="sum"
        ).item()
        depths.append(left[decoded].float())
    return {
        "bits_per_byte": nats / math.log(2) / (size * windows * length / len(ids)),
        "mean_depth": torch.cat(depths).mean().item(),
    }
