"""Muon: momentum whose update is made orthogonal, for the matrices of the layers; matrices of one shape at once.

After Jordan et al., 2024 (https://kellerjordan.github.io/posts/muon/).
"""

import torch


def orthogonal(g):
    """Five steps of the quintic Newton-Schulz iteration, in bf16; for stacks of matrices."""
    x = g.bfloat16()
    wide = x.shape[-2] > x.shape[-1]
    x = x.mT if wide else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if wide else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.02, momentum=0.95, weight_decay=0.05):
        by_shape = {}
        for parameter in parameters:
            by_shape.setdefault(parameter.shape, []).append(parameter)
        groups = [{"params": group} for group in by_shape.values()]
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        """`lr` may be a tensor, so that a captured step follows it."""
        for group in self.param_groups:
            parameters, momentum, lr = group["params"], group["momentum"], group["lr"]
            g = torch.stack([parameter.grad for parameter in parameters])
            state = self.state[parameters[0]]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(g)
            mean = state["momentum"].lerp_(g, 1 - momentum)
            update = orthogonal(g.lerp(mean, momentum)).to(g.dtype)
            scale = max(1, g.shape[-2] / g.shape[-1]) ** 0.5
            kept = torch.stack(parameters) * (1 - lr * group["weight_decay"]) - update * (lr * scale)
            torch._foreach_copy_(parameters, list(kept))
