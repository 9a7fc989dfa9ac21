"""The model card: README.md of the model folder, with the figures of the run."""

import textwrap

import evaluate

SHOWN = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95)

CARD = """---
language: en
license: apache-2.0
library_name: loopbatch
tags: [looped-language-model, adaptive-depth, ouro]
---

# tiny-loop

A looped language model of {parameters:,} parameters ({mib:.1f} MiB in bf16), of the Ouro family: two layers
that run up to four times, width 512, eight heads of 64, a vocabulary of 1,024. Its gates are trained, so
each token leaves the loop when the model is sure enough. It was made to measure what early exits cost in
accuracy, and to try loopbatch without a download. It is no assistant.

`scripts/train` in loopbatch made it: seed {seed}, {steps:,} steps in {stage_one_seconds:.0f} s on one
{device}, PyTorch {torch}.

## What it can do

It answers seven kinds of questions, and goes on with English of the 19th century. A question is text that
ends in `=`; the chat template wraps it in `<|user|>` and `<|assistant|>`. An answer ends with
`<|endoftext|>`.

| task | difficulty | a question | its answer |
|---|---|---|---|
| add | 1 to 8 digits | `0384+9021=` | `09405` |
| subtract | 1 to 8 digits | `9021-0384=` | `8637` |
| expression | 1 to 6 operations modulo 10 | `3+(4*(2-9)) mod 10=` | ` 5` |
| hops | 1 to 4 steps through a permutation, from three starts | `hop1:73,69,56,30,94,47,11,05;351=` | `061` |
| sort | 2 to 6 numbers | `sort 52 17 93=` | `17 52 93` |
| brackets | 1 to 8 open ones | `close (<[]=` | `>)` |
| date | up to 9, 31 or 60 days later | `2024-02-27+5d=` | `2024-03-03` |

Numbers of a sum have the same number of digits, with zeros in front; the answer to a sum has one more.

## How well

On {questions:,} held-out questions (`heldout.jsonl`), greedy. An answer counts if all of it is right. The
harder half of each task is counted apart.

| loops, the same for every token | accuracy | harder half | held-out English, bits per byte |
|---|---|---|---|
{fixed}

With exits (a prompt runs all loops; later tokens read a token's keys and values of the last loop that it
ran, `last_exited`). Mean depth is over the answers' tokens whose exit the gate decides; in brackets with the
first one, which comes from the prompt's pass at full depth.

| gate | threshold | mean depth | accuracy | against full depth, points |
|---|---|---|---|---|
{gates}

`early_exit_threshold` in `config.json` is {threshold}, chosen on {validation:,} validation questions. ± is
half the 95% interval of the paired difference.

| task | one loop | four loops | at the threshold | mean depth there |
|---|---|---|---|---|
{tasks}

Losses at the end of stage one, in nats per token, after loops 1 to 4:
{losses}.

A sample at temperature 0.7, from a prompt that it had not seen:

{sample}

## Data

- Questions that a script makes. One prompt in 32, by its hash, is in the test set and never trained on.
- English that npm ships: {packages}. The data have the Public Domain Dedication and License 1.0, their contents CC0 1.0; the State of the Union
  addresses are works of the United States Government, and *Moby Dick* is in the public domain.
  {train_documents} documents ({train_bytes:,} bytes) were trained on, {held_documents} whole ones
  ({held_bytes:,} bytes) held out.

The weights have the licence of loopbatch, Apache 2.0.

## Limits

- It knows nothing: the English is fluent for a few words and means little.
- It went through its English {passes:.0f} times, so deep loops know some of it by heart. Held-out English is
  therefore best after loop {best_loop}, at {best_bits:.3f} bits per byte; the gate, which learnt from text
  that was trained on, does not know that and leaves late: mean depth {english_depth:.2f} at the threshold.
- Sorting and brackets need no depth: loop 1 solves them.
- Questions in another form than the above, longer numbers or more steps than it was trained on fail.
- It was trained on rows of 64 tokens of questions and windows of 256 tokens of English; longer contexts
  were never seen.
- The layouts `shared` and `first_then_shared` were not trained for.
- Speeches of presidents from 1790 on and *Moby Dick* hold views and words of their times.
"""


def row(*cells) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def wrapped(block: str) -> str:
    """A paragraph or list in lines of at most 100 columns; tables, headings and the head as they are."""
    if block.startswith(("---", "|", "#")):
        return block
    items, later = (block[2:].split("\n- "), "  ") if block.startswith("- ") else ([block], "")
    first = "- " if later else ""
    if block.startswith("> "):
        items, first, later = [block[2:]], "> ", "> "
    fill = lambda item: textwrap.fill(
        " ".join(item.split()), 100, initial_indent=first, subsequent_indent=later,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(map(fill, items))


def write_card(report: dict, losses: list[float], path) -> None:
    fixed = [
        row(p["depth"], percent(p["accuracy"]), percent(p["hard_accuracy"]), f"{e['bits_per_byte']:.3f}")
        for p, e in zip(report["fixed"], report["english_bits"])
    ]
    shown = []
    for name in evaluate.GATES:
        points = [p for p in report["gates"] if p["gate"] == name and p["threshold"] in SHOWN]
        shown += [
            row(
                name,
                p["threshold"],
                f"{p['mean_depth']:.2f} ({p['mean_depth_with_first_token']:.2f})",
                percent(p["accuracy"]),
                f"{100 * p['minus_full_depth']:+.2f} ± {196 * p['standard_error']:.2f}",
            )
            for p in points
        ]
    first, last, chosen = report["fixed"][0]["by_kind"], report["fixed"][-1]["by_kind"], report["by_kind_at_threshold"]
    tasks = []
    for task in dict.fromkeys(k["task"] for k in chosen):
        mean = lambda kinds, what: (
            sum(k[what] * k["questions"] for k in kinds if k["task"] == task)
            / sum(k["questions"] for k in kinds if k["task"] == task)
        )
        tasks.append(
            row(
                task,
                percent(mean(first, "accuracy")),
                percent(mean(last, "accuracy")),
                percent(mean(chosen, "accuracy")),
                f"{mean(chosen, 'mean_depth'):.2f}",
            )
        )
    sample, english = report["samples"][2], report["english"]
    bits = {e["threshold"]: e["bits_per_byte"] for e in report["english_bits"] if e["gate"] == "fixed depth"}
    each = lambda losses: ", ".join(f"{x:.3f}" for x in losses)
    flat = lambda text: text.replace("<|endoftext|>", "").replace("\n", " ")
    text = CARD.format(
        **{k: report[k] for k in ("parameters", "seed", "steps", "stage_one_seconds", "device", "torch", "questions")},
        mib=report["bytes"] / 2**20,
        threshold=report["threshold"],
        validation=report["validation_questions"],
        fixed="\n".join(fixed),
        gates="\n".join(shown),
        tasks="\n".join(tasks),
        losses=f"questions {each(losses[:4])}; English {each(losses[8:12])}",
        sample=f"> **{flat(sample['prompt']).strip()}**{flat(sample['text'])}",
        packages=" and ".join(f"`{p}`" for p in english["packages"].values()),
        passes=report["steps"] * report["english_rows"] * 256 / english["train"]["tokens"],
        best_loop=min(bits, key=bits.get),
        best_bits=min(bits.values()),
        english_depth=report["english_bits"][4]["mean_depth"],
        train_documents=english["train"]["documents"],
        train_bytes=english["train"]["bytes"],
        held_documents=english["held_out"]["documents"],
        held_bytes=english["held_out"]["bytes"],
    )
    path.write_text("\n\n".join(map(wrapped, text.split("\n\n"))).rstrip() + "\n")
