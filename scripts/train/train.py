"""Trains tiny-loop, evaluates it and writes it as a model folder: `train.py --seconds 520 --seed 0 --out DIR`"""

import argparse
import csv
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

import evaluate
import stages
import tasks
import text
from batches import Encoder, English, Questions
from card import write_card
from exits import FullDepth, Gate
from export import write_folder
from figure import draw
from model import Config, LoopedLM

# Shares of the time: the model, the gate, the lookahead gate. The rest is for the start and the evaluation.
SHARES = (0.8, 0.06, 0.03)
TINY = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 1}


class Log:
    """Figures as CSV, and some of them on the screen."""

    def __init__(self, path: Path, columns: list[str]):
        self.file = path.open("w", newline="")
        self.rows, self.path = csv.writer(self.file), path
        self.rows.writerow(columns)
        self.kept = []

    def tail(self) -> list[float]:
        """Means of the last rows, without steps and seconds."""
        return np.mean([row[2:] for row in self.kept[-10:]], 0).tolist()

    def __call__(self, *figures):
        flat = [x for f in figures for x in (f if isinstance(f, list) else [f])]
        self.kept.append(flat)
        self.rows.writerow([f"{x:.5g}" if isinstance(x, float) else x for x in flat])
        self.file.flush()
        if isinstance(figures[0], int) and (figures[0] % 400 == 0 or figures[0] == 1):
            print(self.path.stem, *(f"{x:.3f}" if isinstance(x, float) else x for x in flat), flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=520, help="of all stages with the evaluation")
    parser.add_argument("--steps", type=int, help="of stage one, instead of its share of the time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path("data"), help="what text.py made; made there if missing")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=10, help="processes that make questions")
    parser.add_argument("--rows", type=int, default=768, help="rows of 64 tokens of questions in a batch")
    parser.add_argument("--english-rows", type=int, default=40, help="windows of 256 tokens of English in a batch")
    parser.add_argument("--adam", action="store_true", help="AdamW for all, without Muon")
    parser.add_argument("--rate", type=float, nargs=2, default=(0.02, 2e-3), help="of matrices, of everything else")
    parser.add_argument("--tiny", action="store_true", help="a much smaller model, to try the script on a CPU")
    return parser.parse_args()


def main():
    args, begun = arguments(), time.time()
    args.out.mkdir(parents=True, exist_ok=True)
    if not (args.data / "tokenizer.json").exists():
        text.prepare(args.data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer_file = args.data / "tokenizer.json"
    encode = Encoder(Tokenizer.from_file(str(tokenizer_file)))
    questions = Questions(str(tokenizer_file), args.seed, device, args.workers)
    english = English(np.load(args.data / "english_train.npy"), 256, device)
    data = stages.Data(questions, english, args.rows, args.english_rows, args.seed, device)
    per_task = 40 if args.tiny else 860
    validation = evaluate.Questions(tasks.question_set("validation", per_task // 2, seed=1), encode, device)
    held_out = tasks.question_set("test", per_task, seed=2)
    with (args.out / "heldout.jsonl").open("w") as file:
        file.writelines(json.dumps(question) + "\n" for question in held_out)
    about = json.loads((args.data / "english.json").read_text())
    unseen = torch.from_numpy(np.load(args.data / "english_held_out.npy").astype(np.int64)).to(device)

    model = LoopedLM(Config(**(TINY if args.tiny else {})), torch.bfloat16 if device.type == "cuda" else torch.float32)
    model.to(device)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {time.time() - begun:.0f} s", flush=True)

    loops = range(1, model.config.total_ut_steps + 1)
    named = [f"{part}_{what}_{d}" for part in ("tasks", "english") for what in ("loss", "chance") for d in loops]
    log = losses = Log(args.out / "losses.csv", ["step", "seconds", *named])
    checks = Log(args.out / "checks.csv", ["step", *(f"{which}_{d}" for which in ("all", "hard") for d in loops)])

    def check(step):
        right = [evaluate.grade(model, validation, FullDepth(d))[0] for d in loops]
        shares = [[r[mask].float().mean().item() for r in right] for mask in (validation.hard >= 0, validation.hard)]
        checks(step, *shares)
        print(
            "validation", step, f"{time.time() - begun:.0f} s", *([f"{x:.3f}" for x in s] for s in shares), flush=True
        )
        kinds = evaluate.by_kind(validation, right[-1], torch.ones_like(validation.tokens))
        print("  ", *(f"{k['task'][:4]}{k['difficulty']}:{k['accuracy']:.2f}" for k in kinds), flush=True)

    clock = stages.Clock(SHARES[0] * args.seconds - (time.time() - begun), args.steps)
    stages.train_model(model, data, clock, log, check, args.rate, not args.adam)
    steps, trained = clock.step, time.time() - clock.begun
    check(steps)
    # What follows sees the weights as they are shipped.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    write_folder(model, args.out / "tiny-loop", tokenizer_file, 1.0)

    log = Log(args.out / "gate.csv", ["step", "seconds", "loss"])
    gates = stages.train_gate(model, data, stages.Clock(SHARES[1] * args.seconds), log)
    gate, tried = model.model.early_exit_gate, []
    for gamma, weight, bias in gates:
        with torch.no_grad():
            gate.weight.copy_(weight.bfloat16())
            gate.bias.copy_(bias.bfloat16())
        points = evaluate.sweep(model, validation, ("released",))
        point = evaluate.best(points, "released", 0.005)
        tried.append((point["mean_depth"] if point else 9, gamma, weight, bias, point))
        print("gamma", gamma, point, flush=True)
    _, gamma, weight, bias, point = min(tried, key=lambda t: t[:2])
    with torch.no_grad():
        gate.weight.copy_(weight.bfloat16())
        gate.bias.copy_(bias.bfloat16())
    log = Log(args.out / "lookahead.csv", ["step", "seconds", "loss"])
    stages.train_lookahead(model, data, stages.Clock(SHARES[2] * args.seconds), log)
    questions.close()
    with torch.no_grad():
        for parameter in model.lookahead_gate.parameters():
            parameter.copy_(parameter.bfloat16())
    threshold = point["threshold"] if point else 1.0
    size = write_folder(model, args.out / "tiny-loop", tokenizer_file, threshold)
    print(f"trained: {steps} steps, gamma {gamma}, threshold {threshold}, {time.time() - begun:.0f} s", flush=True)

    report = {
        "seed": args.seed, "seconds": args.seconds, "steps": steps, "stage_one_seconds": trained,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU", "torch": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()), "bytes": size, "rows": args.rows,
        "english_rows": args.english_rows, "gamma": gamma, "threshold": threshold,
        "validation_questions": len(validation.about), "english": about, "last_losses": losses.tail(),
        "gammas": [{"gamma": g, "best": p} for _, g, _, _, p in tried],
    }  # fmt: skip
    save = lambda: (args.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
    save()
    report.update(
        assess(model, evaluate.Questions(held_out, encode, device), unseen, about["held_out"]["bytes"], threshold)
    )
    report["samples"] = samples(model, encode.tokenizer, unseen, threshold)
    report["total_seconds"] = time.time() - begun
    save()
    write_card(report, report["last_losses"], args.out / "tiny-loop" / "README.md")
    draw(args.out)
    for p in report["fixed"] + report["decoded"]:
        print(
            {k: round(v, 4) if isinstance(v, float) else v for k, v in p.items() if k not in ("by_kind", "exit_shares")}
        )
    for p in report["gates"]:
        print(
            f"{p['gate']:9} {p['threshold']:5} depth {p['mean_depth']:.3f} {p['mean_depth_with_first_token']:.3f} "
            f"accuracy {p['accuracy']:.4f} ({p['minus_full_depth']:+.4f}) hard {p['hard_accuracy']:.4f}"
        )
    print(json.dumps(report["english_bits"]), f"{report['total_seconds']:.0f} s")


def assess(model, held_out, unseen, size, threshold) -> dict:
    """Everything that is reported of the held-out sets."""
    full, _ = evaluate.grade(model, held_out, FullDepth(4))
    fixed = []
    for depth in range(1, 5):
        right, left = evaluate.grade(model, held_out, FullDepth(depth))
        kinds = evaluate.by_kind(held_out, right, left)
        fixed.append({"depth": depth, **evaluate.figures(held_out, right, left, full), "by_kind": kinds})
    points = evaluate.sweep(model, held_out)
    shown, decoded = [Gate(name, threshold) for name in evaluate.GATES], []
    for rule in [FullDepth(4), *shown]:
        decoded.append(
            {"gate": rule.name, "threshold": rule.threshold, **evaluate.decode_answers(model, held_out, rule)}
        )
    chosen = evaluate.by_kind(held_out, *evaluate.grade(model, held_out, Gate("released", threshold)))
    rules = [FullDepth(d) for d in range(1, 5)] + shown
    english = [
        {"gate": r.name, "threshold": r.threshold, **evaluate.bits_per_byte(model, unseen, size, r)} for r in rules
    ]
    return {
        "questions": len(full), "fixed": fixed, "gates": points, "decoded": decoded,
        "by_kind_at_threshold": chosen, "english_bits": english,
    }  # fmt: skip


def samples(model, tokenizer, unseen, threshold) -> list[dict]:
    """Text that goes on from held-out text, with the loops after which its tokens left."""
    device = unseen.device
    prompts = [unseen[at : at + 24].tolist() for at in (40, 20_040, 90_040, 150_040)]
    generator = torch.Generator(device=device).manual_seed(0)
    ids, depths = evaluate.generate(model, prompts, Gate("released", threshold), 100, 0.7, generator)
    return [
        {"prompt": tokenizer.decode(p), "text": tokenizer.decode(i), "depths": d.tolist()}
        for p, i, d in zip(prompts, ids, depths)
    ]


if __name__ == "__main__":
    sys.exit(main())
