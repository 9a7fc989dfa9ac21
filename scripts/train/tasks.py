"""Graded tasks whose answers can be checked. Each makes (prompt, answer) at a difficulty.

Whether a question may be trained on follows from its prompt alone: `split` sends one prompt in 32 to the test
set, one to the validation set, and the others to training. So no training run can have seen a test question.
"""

import datetime
import random
import zlib

HOPS_NODES = 8


def add(r: random.Random, digits: int):
    a, b = r.randrange(10**digits), r.randrange(10**digits)
    return f"{a:0{digits}}+{b:0{digits}}=", f"{a + b:0{digits + 1}}"


def subtract(r: random.Random, digits: int):
    a, b = sorted((r.randrange(10**digits), r.randrange(10**digits)), reverse=True)
    return f"{a:0{digits}}-{b:0{digits}}=", f"{a - b:0{digits}}"


def expression(r: random.Random, operations: int):
    def build(k):
        if k == 0:
            value = r.randrange(10)
            return str(value), value
        left = r.randrange(k)
        (x, a), (y, b) = build(left), build(k - 1 - left)
        op = r.choice("+-*")
        return f"({x}{op}{y})", (a + b if op == "+" else a - b if op == "-" else a * b) % 10

    text, value = build(operations)
    return f"{text[1:-1]} mod 10=", f" {value}"


def hops(r: random.Random, steps: int):
    """A permutation of eight digits as pairs; where do three of them lead after some steps?"""
    nodes = r.sample(range(10), HOPS_NODES)
    to = dict(zip(nodes, r.sample(nodes, HOPS_NODES)))
    starts, ends = r.sample(nodes, 3), []
    for node in starts:
        for _ in range(steps):
            node = to[node]
        ends.append(node)
    pairs = ",".join(f"{a}{to[a]}" for a in r.sample(nodes, HOPS_NODES))
    join = lambda digits: "".join(map(str, digits))
    return f"hop{steps}:{pairs};{join(starts)}=", join(ends)


def sort(r: random.Random, numbers: int):
    chosen = [f"{r.randrange(100):02}" for _ in range(numbers)]
    return f"sort {' '.join(chosen)}=", " ".join(sorted(chosen))


def brackets(r: random.Random, depth: int):
    """Closes what is still open: `depth` brackets, among up to three that were closed."""
    closed = r.randrange(4)
    moves = ["open"] * (depth + closed) + ["close"] * closed
    while True:
        r.shuffle(moves)
        text, stack = "", []
        for move in moves:
            if move == "open":
                stack.append(r.choice(["()", "[]", "{}", "<>"]))
                text += stack[-1][0]
            elif stack:
                text += stack.pop()[1]
        if len(stack) == depth:
            return f"close {text}=", "".join(bracket[1] for bracket in reversed(stack))


def date(r: random.Random, level: int):
    first, last = {1: (1, 9), 2: (10, 31), 3: (32, 60)}[level]
    days = r.randint(first, last)
    day = datetime.date(1950, 1, 1) + datetime.timedelta(r.randrange(36_525))
    return f"{day}+{days}d=", str(day + datetime.timedelta(days))


# Name: how to make one, its difficulties, those of the harder half, its share in training.
TASKS = {
    "add": (add, range(1, 9), 5, 0.15),
    "subtract": (subtract, range(1, 9), 5, 0.12),
    "expression": (expression, range(1, 7), 4, 0.30),
    "hops": (hops, range(1, 5), 3, 0.22),
    "sort": (sort, range(2, 7), 5, 0.07),
    "brackets": (brackets, range(1, 9), 5, 0.06),
    "date": (date, range(1, 4), 2, 0.08),
}
NAMES = list(TASKS)


def is_hard(task: str, difficulty: int) -> bool:
    return difficulty >= TASKS[task][2]


def split(prompt: str) -> str:
    return {0: "test", 1: "validation"}.get(zlib.crc32(prompt.encode()) % 32, "train")


def make(r: random.Random, task: str, difficulty: int, part: str):
    """A question of that part of the split, or none if it is not found soon."""
    for _ in range(400):
        prompt, answer = TASKS[task][0](r, difficulty)
        if split(prompt) == part:
            return prompt, answer
    return None


def training_question(r: random.Random):
    """Shares as in the table, difficulties evenly."""
    while True:
        task = r.choices(NAMES, [share for *_, share in TASKS.values()])[0]
        if made := make(r, task, r.choice(TASKS[task][1]), "train"):
            return made


def question_set(part: str, per_task: int, seed: int) -> list[dict]:
    """Questions without repetition, the same number per task and, where there are enough, per difficulty."""
    r, questions, seen = random.Random(seed), [], set()
    for task, (_, difficulties, _, _) in TASKS.items():
        count, barren = 0, dict.fromkeys(difficulties, 0)
        while count < per_task:
            for difficulty in [d for d in difficulties if barren[d] < 50]:
                made = make(r, task, difficulty, part)
                if made is None or made[0] in seen:
                    barren[difficulty] += 1
                    continue
                if count < per_task:
                    seen.add(made[0])
                    count += 1
                    questions.append(
                        {
                            "prompt": made[0],
                            "answer": made[1],
                            "scorer": "exact",
                            "task": task,
                            "difficulty": difficulty,
                        }
                    )
    return questions
