"""Checks model.py and exits.py against what the released modelling code computed: `check_model.py FOLDER...`

The folders are those of engine/tests/hf/fixtures: logits and hazards at every depth, and greedy runs whose
tokens left early.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from exits import Gate, run
from model import Config, LoopedLM


def load(folder: Path, config: dict) -> LoopedLM:
    known = Config.__dataclass_fields__
    model = LoopedLM(Config(**{key: config[key] for key in known if key in config}), compute=torch.float32)
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update({name: tensor.float() for name, tensor in load_file(file).items()})
    if config.get("tie_word_embeddings"):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    odd = model.load_state_dict(tensors, strict=False)
    assert not odd.unexpected_keys and all("lookahead_gate" in name for name in odd.missing_keys), odd
    return model.eval()


@torch.no_grad()
def check(folder: Path) -> str:
    config, expected = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "expected"))
    model = load(folder, config)
    worst_logit = worst_hazard = 0.0
    for index, prompt in enumerate(expected["prompts"]):
        tokens = torch.tensor([prompt])
        states = model(tokens, torch.arange(len(prompt))[None])
        for case in (case for case in expected["logits"] if case["prompt"] == index):
            logits = model.lm_head(states[case["depth"] - 1][0, -1])
            wanted = torch.tensor(case["top"])
            worst_logit = max(worst_logit, (logits[case["top_ids"]] - wanted).abs().max().item())
        for case in (case for case in expected["gate"] if case["prompt"] == index):
            hazards = torch.stack([model.hazard(state)[0] for state in states], -1)[case["positions"]]
            worst_hazard = max(worst_hazard, (hazards - torch.tensor(case["hazard"])).abs().max().item())
    same = total = 0
    for exits in (exits for exits in expected["exits"] if exits["layout"] == "last_exited"):
        for case in exits["runs"]:
            prompt = expected["prompts"][case["prompt"]]
            tokens = torch.tensor([prompt + case["tokens"]])
            decoded = torch.arange(tokens.shape[1])[None] >= len(prompt)
            state, left = run(
                model, tokens, torch.arange(tokens.shape[1])[None], decoded, Gate("released", exits["threshold"])
            )
            chosen = model.lm_head(state)[0].argmax(-1)[len(prompt) - 1 : -1].tolist()
            depths = left[0, len(prompt) - 1 : -1].tolist()
            same += sum(a == b for a, b in zip(zip(chosen, depths), zip(case["tokens"], case["depths"])))
            total += len(chosen)
    assert worst_logit < 1e-4 and worst_hazard < 1e-5 and same == total, (worst_logit, worst_hazard, same, total)
    return f"logits to {worst_logit:.1e}, hazards to {worst_hazard:.1e}, {same} of {total} early exits"


if __name__ == "__main__":
    torch.set_num_threads(1)
    for folder in sys.argv[1:]:
        print(folder, check(Path(folder)))
