"""Draws a run: losses over steps, validation accuracy over steps, accuracy over mean depth. `figure.py DIR`"""

import csv
import json
import sys
from pathlib import Path

COLOURS = ("#b0c4de", "#6f9bd1", "#2f6fb3", "#0b2f5b")
GATES = {"released": "#c2410c", "delayed": "#6b7280", "lookahead": "#0f766e"}


def columns(path: Path) -> dict[str, list[float]]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


def draw(folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tiny-loop"
    from matplotlib import pyplot

    losses, checks = columns(folder / "losses.csv"), columns(folder / "checks.csv")
    report = json.loads((folder / "evaluation.json").read_text())
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7.5))
    for axis, part in zip(axes[0], ("tasks", "english")):
        for depth, colour in enumerate(COLOURS, 1):
            axis.plot(losses["step"], losses[f"{part}_loss_{depth}"], color=colour, label=f"after loop {depth}", lw=1)
        axis.set(
            title=f"training loss, {'questions' if part == 'tasks' else part}", xlabel="step", ylabel="nats per token"
        )
        if part == "tasks":
            axis.set_yscale("log")
    for depth, colour in enumerate(COLOURS, 1):
        axes[1, 0].plot(checks["step"], checks[f"all_{depth}"], color=colour, label=f"after loop {depth}")
        axes[1, 0].plot(checks["step"], checks[f"hard_{depth}"], color=colour, ls=":")
    axes[1, 0].set(title="validation accuracy (dotted: harder half)", xlabel="step", ylim=(0, 1.02))
    for name, colour in GATES.items():
        points = sorted((p["mean_depth"], p["accuracy"]) for p in report["gates"] if p["gate"] == name)
        axes[1, 1].plot(*zip(*points), color=colour, marker=".", label=f"{name} gate")
    axes[1, 1].plot(*zip(*((p["depth"], p["accuracy"]) for p in report["fixed"])), "kx", label="fixed depth")
    axes[1, 1].axhline(report["fixed"][-1]["accuracy"] - 0.01, color="k", lw=0.5, ls="--")
    axes[1, 1].set(title="held-out accuracy (dashed: full depth less a point)", xlabel="mean depth of decoded tokens")
    for axis in axes.flat:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(folder / "training.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
