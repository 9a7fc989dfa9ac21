"""The looped models in PyTorch float64, against the logits that `bench logits` wrote: python3 reference.py logits.json

Weights are the engine's seeded ones, made here from the same counters, so no file has to travel. Nothing is rounded, so
the difference is all of the engine's bf16.
"""

import json
import sys

import numpy as np
import torch

SHAPES = {
    "ouro-1.4b": dict(vocab=49152, hidden=2048, ffn=5632, heads=16, dim=128, base=1e6),
    "huginn-3.5b": dict(vocab=65536, hidden=5280, ffn=17920, heads=55, dim=96, base=5e4),
}
device = "cuda" if torch.cuda.is_available() else "cpu"


def signed(x):
    """A 64-bit pattern as torch's int64 has it."""
    return x - (1 << 64) if x >= 1 << 63 else x


STRIDE, M1, M2 = signed(0x9E3779B97F4A7C15), signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB)


def shift(x, n):
    return (x >> n) & ((1 << (64 - n)) - 1)


def mix(x):
    x = (x ^ shift(x, 30)) * M1
    x = (x ^ shift(x, 27)) * M2
    return x ^ shift(x, 31)


def tensor64(x):
    return torch.tensor(signed(x & (1 << 64) - 1), dtype=torch.int64, device=device)


def draw(seed, stream, a, b):
    key = mix(tensor64(seed) ^ tensor64(stream) * STRIDE)
    return mix(mix(key ^ a * STRIDE) + b * STRIDE)


def centred(bits):
    return (shift(bits, 40) * 2 + 1 - (1 << 24)).to(torch.float32) * 2.0**-25


def weight(seed, name, shape, mean, std):
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = (stream ^ byte) * 0x100000001B3 & (1 << 64) - 1
    count = int(np.prod(shape))
    index = torch.arange(count, dtype=torch.int64, device=device)
    scale = float(np.float32(std) * np.sqrt(np.float32(12)))
    values = torch.float32
    x = torch.tensor(mean, dtype=values, device=device) + torch.tensor(scale, dtype=values, device=device) * centred(
        draw(seed, 1, tensor64(stream), index))
    return x.to(torch.bfloat16).to(torch.float64).reshape(shape)


def linear(seed, name, outputs, inputs):
    return weight(seed, name, (outputs, inputs), 0.0, float(np.float32(inputs) ** np.float32(-0.5)))


def norm(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


def truncated_normal(seed, positions, channels):
    f = torch.float32
    q = torch.tensor(0.9973002, dtype=f, device=device) * centred(
        draw(seed, 3, positions.reshape(-1, 1), channels.reshape(1, -1)))
    u = (0.5 - q) * (0.5 + q)
    p = ((1.4945215 * u + 0.7349653) * u + 0.018001003) * u + 2.9585228e-5
    d = ((u + 0.20639053) * u + 0.0034189187) * u + 4.188604e-6
    return (q * (p / d)) * torch.tensor(0.6324555, dtype=f, device=device)


class Model:
    def __init__(self, spec):
        self.spec, self.s = spec, SHAPES[spec["model"]]
        self.ouro = spec["model"].startswith("ouro")
        s, seed, h = self.s, spec["seed"], self.s["hidden"]
        ones = lambda name, mean=1.0, std=0.15: weight(seed, name, (h,), mean, std)
        if self.ouro:
            self.embedding = weight(seed, "model.embed_tokens.weight", (s["vocab"], h), 0.0, 1.0)
            self.head, self.final = linear(seed, "lm_head.weight", s["vocab"], h), ones("model.norm.weight")
            self.core, self.prelude, self.coda = [self.ouro_layer(i) for i in range(spec["core_layers"])], [], []
        else:
            self.embedding = linear(seed, "transformer.wte.weight", s["vocab"], h)
            self.head, self.final = self.embedding, ones("transformer.ln_f.weight")
            self.adapter = linear(seed, "transformer.adapter.weight", h, 2 * h)
            part = lambda name, n: [self.huginn_layer(f"transformer.{name}.{i}.") for i in range(n)]
            self.core, self.prelude = part("core_block", spec["core_layers"]), part("prelude", spec["outside"])
            self.coda = part("coda", spec["outside"])

    def ouro_layer(self, i):
        s, seed, name = self.s, self.spec["seed"], lambda t: f"model.layers.{i}.{t}.weight"
        h, f = s["hidden"], s["ffn"]
        n = lambda t, *fill: weight(seed, name(t), (h,), *fill)
        return dict(
            norms=[n("input_layernorm", 1.0, 0.15), n("input_layernorm_2", 0.3, 0.05),
                   n("post_attention_layernorm", 1.0, 0.15), n("post_attention_layernorm_2", 0.3, 0.05)],
            qkv=torch.cat([linear(seed, name(f"self_attn.{p}_proj"), h, h) for p in "qkv"]), bias=None,
            out=linear(seed, name("self_attn.o_proj"), h, h),
            gate_up=torch.cat([linear(seed, name(f"mlp.{p}_proj"), f, h) for p in ("gate", "up")]),
            down=linear(seed, name("mlp.down_proj"), h, f))

    def huginn_layer(self, prefix):
        s, seed = self.s, self.spec["seed"]
        h, f = s["hidden"], s["ffn"]
        return dict(
            norms=[weight(seed, f"{prefix}norm_{i}.weight", (h,), 1.0, 0.15) for i in (1, 2, 3, 4)],
            qkv=linear(seed, prefix + "attn.Wqkv.weight", 3 * h, h),
            bias=weight(seed, prefix + "attn.qk_bias", (2, 1, s["heads"], s["dim"]), 0.0, 0.1),
            out=linear(seed, prefix + "attn.proj.weight", h, h),
            gate_up=linear(seed, prefix + "mlp.fc.weight", 2 * f, h), down=linear(seed, prefix + "mlp.proj.weight", h, f))

    def rope(self, x):
        d, t = self.s["dim"], x.shape[0]
        frequency = torch.tensor([np.float32(1.0 / self.s["base"] ** (2 * i / d)) for i in range(d // 2)],
                                 dtype=torch.float32, device=device)
        angle = (torch.arange(t, dtype=torch.float32, device=device)[:, None] * frequency).to(torch.float64)
        cos, sin = torch.cos(angle)[:, None, :], torch.sin(angle)[:, None, :]
        if self.ouro:
            a, b = x[..., : d // 2], x[..., d // 2:]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

    def attention(self, layer, y):
        t, heads, d = y.shape[0], self.s["heads"], self.s["dim"]
        q, k, v = (y @ layer["qkv"].T).reshape(t, 3, heads, d).unbind(1)
        if layer["bias"] is not None:
            q, k = q + layer["bias"][0], k + layer["bias"][1]
        q, k = self.rope(q), self.rope(k)
        score = torch.einsum("ihd,jhd->hij", q, k) * d**-0.5
        score = score.masked_fill(torch.ones(t, t, dtype=torch.bool, device=device).triu(1), -torch.inf)
        return torch.einsum("hij,jhd->ihd", score.softmax(-1), v).reshape(t, -1) @ layer["out"].T

    def mlp(self, layer, y):
        gate, up = (y @ layer["gate_up"].T).chunk(2, -1)
        return (torch.nn.functional.silu(gate) * up) @ layer["down"].T

    def layer(self, layer, x):
        n1, n2, n3, n4 = layer["norms"]
        if self.ouro:
            x = x + norm(self.attention(layer, norm(x, n1)), n2)
            return x + norm(self.mlp(layer, norm(x, n3)), n4)
        x = norm(self.attention(layer, norm(x, n1)) + x, n2)
        return norm(self.mlp(layer, norm(x, n3)) + x, n4)

    def logits(self, tokens):
        x = self.embedding[torch.tensor(tokens, device=device)]
        if self.ouro:
            for _ in range(self.spec["r_max"]):
                for layer in self.core:
                    x = self.layer(layer, x)
                x = norm(x, self.final)
            return x @ self.head.T
        x = x * self.s["hidden"] ** 0.5
        for layer in self.prelude:
            x = self.layer(layer, x)
        positions = torch.arange(len(tokens), dtype=torch.int64, device=device)
        channels = torch.arange(self.s["hidden"], dtype=torch.int64, device=device)
        state = truncated_normal(self.spec["noise_seed"], positions, channels).to(torch.float64)
        for _ in range(self.spec["r_max"]):
            state = torch.cat([state, x], -1) @ self.adapter.T
            for layer in self.core:
                state = self.layer(layer, state)
        state = norm(state, self.final)
        for layer in self.coda:
            state = self.layer(layer, state)
        return norm(state, self.final) @ self.head.T


def main(path):
    spec = json.load(open(path))
    model = Model(spec)
    got = np.fromfile(path.replace(".json", ".bin"), dtype=np.float32).reshape(-1, model.s["vocab"])
    errors, at = [[], []], 0
    for request in spec["requests"]:
        tokens = request["prompt"] + request["output"][:-1]
        with torch.no_grad():
            expected = model.logits(tokens)[len(request["prompt"]) - 1:].cpu().numpy()
        for i, row in enumerate(expected):
            error = np.linalg.norm(got[at] - row) / np.linalg.norm(row)
            errors[min(i, 1)].append(error)
            at += 1
    worst = [float(max(e)) if e else 0.0 for e in errors]
    print(f"{spec['model']}, {spec['core_layers']} core layers, {spec['r_max']} loops: "
          f"relative error against float64: prefill {worst[0]:.2e}, decode {worst[1]:.2e}")
    if not max(worst) < 3e-2:
        sys.exit("too far from the reference")


main(sys.argv[1])
