"""A looped language model with the arithmetic of the released Ouro code, and its tensor names.

Every loop runs all layers and ends with the final norm; the normed state is the next loop's input, the
gate's input and the LM head's input. A norm stands before and behind each branch, inside the residual sum.
Weights are kept in fp32 and used in the dtype of `compute`, in which the residual stream is rounded, too.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab_size: int = 1024
    hidden_size: int = 512
    intermediate_size: int = 1408
    num_hidden_layers: int = 2
    num_attention_heads: int = 8
    head_dim: int = 64
    total_ut_steps: int = 4
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6

    def to_json(self) -> dict:
        """What config.json holds: Ouro's keys, and no more than a reader needs."""
        return {
            "architectures": ["OuroForCausalLM"],
            "model_type": "ouro",
            **asdict(self),
            "num_key_value_heads": self.num_attention_heads,
            "hidden_act": "silu",
            "max_position_embeddings": 1024,
            "rope_scaling": None,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "torch_dtype": "bfloat16",
            "bos_token_id": 0,
            "eos_token_id": 0,
            "pad_token_id": 0,
        }


class Norm(nn.Module):
    """RMS norm: in fp32, rounded, then multiplied by the rounded weight."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight.to(x.dtype) * wide.to(x.dtype)


class Linear(nn.Linear):
    """A linear layer that computes in its input's dtype."""

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class Attention(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        width = c.num_attention_heads * c.head_dim
        self.heads, self.head_dim = c.num_attention_heads, c.head_dim
        self.q_proj, self.k_proj, self.v_proj = (Linear(c.hidden_size, width, bias=False) for _ in range(3))
        self.o_proj = Linear(width, c.hidden_size, bias=False)

    def forward(self, x, angles, allowed, kept, live):
        """`kept`: the keys and values that were seen of every position in the loop before.

        A position that has left keeps what it wrote last, so a later position in loop d reads plane
        min(d, exit) of it: the rule of the layout `last_exited`.
        """
        rows, length, _ = x.shape
        split = lambda y: y.view(rows, length, self.heads, self.head_dim).transpose(1, 2)
        q, k, v = rotate(split(self.q_proj(x)), *angles), rotate(split(self.k_proj(x)), *angles), split(self.v_proj(x))
        here = live[:, None, :, None]
        k, v = torch.where(here, k, kept[0]), torch.where(here, v, kept[1])
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=allowed is None)
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1)), (k, v)


def rotate(x, cos, sin):
    """RoPE by halves."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Mlp(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.gate_proj = Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        norm = lambda: Norm(c.hidden_size, c.rms_norm_eps)
        self.input_layernorm, self.input_layernorm_2 = norm(), norm()
        self.post_attention_layernorm, self.post_attention_layernorm_2 = norm(), norm()

    def forward(self, x, angles, allowed, kept, live):
        mixed, kept = self.self_attn(self.input_layernorm(x), angles, allowed, kept, live)
        x = x + self.input_layernorm_2(mixed)
        return x + self.post_attention_layernorm_2(self.mlp(self.post_attention_layernorm(x))), kept


class Core(nn.Module):
    """What a loop runs; holds what the released checkpoints call `model`."""

    def __init__(self, c: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)
        self.early_exit_gate = nn.Linear(c.hidden_size, 1)

    def forward(self, x, angles, allowed, kept, live):
        seen = []
        for layer, before in zip(self.layers, kept):
            x, now = layer(x, angles, allowed, before, live)
            seen.append(now)
        return self.norm(x), seen


class LoopedLM(nn.Module):
    def __init__(self, c: Config, compute=torch.bfloat16):
        super().__init__()
        self.config, self.compute = c, compute
        self.model, self.lm_head = Core(c), Linear(c.hidden_size, c.vocab_size, bias=False)
        self.lookahead_gate = nn.Linear(c.hidden_size, 1)
        self.loop = self.model.forward  # Replaced by its compiled form in training.
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def angles(self, positions):
        """Cosines and sines in fp32, rounded to the computing type."""
        dim = self.config.head_dim
        steps = torch.arange(0, dim, 2, device=positions.device).float() / dim
        turns = positions[..., None].float() * (self.config.rope_theta**-steps)
        turns = torch.cat((turns, turns), -1)[:, None]
        return turns.cos().to(self.compute), turns.sin().to(self.compute)

    def forward(self, tokens, positions, allowed=None, still=None):
        """The states after each loop.

        `allowed`: which positions see which (rows, 1, length, length); causal without it.
        `still(depth, state)`: which positions (rows, length) run the loop behind `depth`; all without it.
        """
        angles = self.angles(positions)
        x = self.model.embed_tokens(tokens).to(self.compute)
        live, states = torch.ones_like(tokens, dtype=torch.bool), []
        heads = x.new_zeros(len(tokens), self.config.num_attention_heads, tokens.shape[1], self.config.head_dim)
        kept = [(heads, heads)] * self.config.num_hidden_layers
        for depth in range(1, self.config.total_ut_steps + 1):
            x, kept = self.loop(x, angles, allowed, kept, live)
            states.append(x)
            if still is not None:
                live = live & still(depth, x)
        return states

    def hazard(self, state):
        """The released gate's, in fp32."""
        return torch.sigmoid(self.model.early_exit_gate(state.float()).squeeze(-1))

    def next_hazard(self, state):
        """What the lookahead gate predicts of the next loop's hazard."""
        return torch.sigmoid(self.lookahead_gate(state.float()).squeeze(-1))
