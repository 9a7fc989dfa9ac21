"""Writes a trained model as a Hugging Face folder that the engine reads: bf16, two shards with an index."""

import json
import shutil
from pathlib import Path

import torch

from text import tokenizer_config

SHARD = 8 << 20


def write_safetensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 2
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().view(torch.int16).numpy().tobytes())


def write_weights(model, folder: Path) -> int:
    """Returns how many bytes the tensors take."""
    tensors = {name: tensor.detach().to(torch.bfloat16).cpu() for name, tensor in model.state_dict().items()}
    shards, sizes = [{}], [0]
    for name, tensor in tensors.items():
        size = tensor.numel() * 2
        if sizes[-1] + size > SHARD:
            shards.append({})
            sizes.append(0)
        shards[-1][name] = tensor
        sizes[-1] += size
    where = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(shard, folder / file)
        where |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": sum(sizes)}, "weight_map": dict(sorted(where.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return sum(sizes)


def write_folder(model, folder: Path, tokenizer_file: Path, threshold: float) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    write = lambda name, what: (folder / name).write_text(json.dumps(what, indent=2, ensure_ascii=False) + "\n")
    write("config.json", {**model.config.to_json(), "early_exit_threshold": threshold})
    ends = {"bos_token_id": 0, "eos_token_id": [0], "pad_token_id": 0}
    write("generation_config.json", {**ends, "do_sample": False})
    write("tokenizer_config.json", tokenizer_config())
    shutil.copy(tokenizer_file, folder / "tokenizer.json")
    return write_weights(model, folder)
