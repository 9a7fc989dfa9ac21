"""The three stages of training. See README.md for the recipe and how it departs from Ouro's."""

import time

import torch
import torch.nn.functional as F
from torch import nn

from batches import SPARE, visible
from muon import Muon

# The prior over loops, to which the exit distribution is held: it leans on the last loop. An even one lets
# the first loop learn all that is learnt, and depth means nothing.
PRIOR = (0.04, 0.12, 0.2, 0.64)
BETA = 1.0
ENGLISH_WEIGHT = 0.4
# A share of rows has tokens that leave early, so that later tokens learn to read what these leave behind.
EXITING_ROWS, EXIT_SHARES = 0.3, (0.25, 0.2, 0.15, 0.4)
# Of the gate's label (arXiv 2510.25741): slope, and the gain in nats that is worth a loop. The paper has 0.005.
SLOPE, GAMMAS = 50.0, (0.005, 0.05, 0.2)


class Data:
    """What a step trains on."""

    def __init__(self, questions, english, rows, english_rows, seed, device):
        self.questions, self.english, self.rows, self.english_rows = questions, english, rows, english_rows
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.bounds = torch.tensor(EXIT_SHARES, device=device).cumsum(0)[:-1]

    def draw(self, *shape):
        return torch.rand(shape, device=self.generator.device, generator=self.generator)

    def exits(self, decoded):
        """After which loop each position leaves: at random in some rows, if it is a decoded one."""
        exits = torch.bucketize(self.draw(*decoded.shape), self.bounds) + 1
        exiting = self.draw(len(decoded), 1) < EXITING_ROWS
        return torch.where(decoded & exiting, exits, len(EXIT_SHARES))

    def parts(self, early: bool):
        """Questions, then English: states' inputs, the positions to read, their targets, which count, exits."""
        batch = self.questions.batch(self.rows, self.generator)
        tokens, read = batch["tokens"].long(), batch["answers"].long()
        counts = read != SPARE
        read = read.masked_fill(~counts, 0)
        exits = self.exits(batch["decoded"] & early)
        yield tokens, batch["positions"].long(), visible(batch["of"]), read, tokens.gather(1, read + 1), counts, exits
        window = self.english.batch(self.english_rows, self.generator)
        tokens = window[:, :-1]
        at = torch.arange(tokens.shape[1], device=tokens.device)
        prompt = (self.draw(len(tokens), 1) * tokens.shape[1]).long()
        exits = self.exits((at >= prompt) & early)
        every = at.expand_as(tokens)
        yield tokens, every, None, every, window[:, 1:], torch.ones_like(exits, dtype=torch.bool), exits


def states_read(model, part):
    """States after each loop at the positions that are read: (loop, row, read, channel)."""
    tokens, positions, allowed, read, _, _, exits = part
    states = model(tokens, positions, allowed, lambda depth, _: exits > depth)
    if read.shape == tokens.shape:
        return torch.stack(states)
    index = read[..., None].expand(-1, -1, states[0].shape[-1])
    return torch.stack([state.gather(1, index) for state in states])


def cross_entropy(logits, targets):
    """Of each loop: (loop, row, read)."""
    loops = len(logits)
    return F.cross_entropy(logits.float().flatten(0, -2), targets.repeat(loops, 1).flatten(), reduction="none").view(
        loops, *targets.shape
    )


def exit_distribution(hazards):
    """Chances to leave after each loop, of hazards after all loops but the last."""
    survival = torch.cumprod(1 - hazards, 0)
    before = torch.cat((torch.ones_like(hazards[:1]), survival[:-1]))
    return torch.cat((hazards * before, survival[-1:]))


def looped_loss(states, targets, counts, left, prior, head, gate_weight, gate_bias):
    """Stage one's: the expected loss over loops, and how far the exit distribution is from the prior.

    The gate reads detached states, so it learns where the loss is low without shaping the states.
    """
    losses = cross_entropy(F.linear(states, head.to(states.dtype)), targets)
    hazards = torch.sigmoid(F.linear(states[:-1].detach().float(), gate_weight, gate_bias).squeeze(-1))
    chances = exit_distribution(hazards).clamp_min(1e-6)
    depth = torch.arange(1, len(PRIOR) + 1, device=states.device)[:, None, None]
    ran = (depth <= left) & counts
    expected = (chances * losses * ran).sum() / counts.sum()
    whole = counts & (left == len(PRIOR))
    apart = ((chances * (chances / prior).log()).sum(0) * whole).sum() / whole.sum().clamp_min(1)
    each = (losses.detach() * whole).sum((1, 2)) / whole.sum().clamp_min(1)
    usual = (chances.detach() * whole).sum((1, 2)) / whole.sum().clamp_min(1)
    return expected + BETA * apart, each, usual


class Clock:
    """How much of a stage is done, by time or by steps."""

    def __init__(self, seconds, steps=None):
        self.begun, self.seconds, self.steps, self.step = time.time(), seconds, steps, 0

    def done(self) -> float:
        if self.steps:
            return self.step / self.steps
        return (time.time() - self.begun) / self.seconds


class Captured:
    """A step as one CUDA graph: a model this small is bound by launches otherwise."""

    def __init__(self, step, parts):
        self.inputs = [tuple(x if x is None else x.clone() for x in part) for part in parts]
        # Warming up, as CUDA graphs need it: on another stream.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step(self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.figures = step(self.inputs)

    def __call__(self, parts):
        for inputs, part in zip(self.inputs, parts):
            for kept, x in zip(inputs, part):
                if kept is not None:
                    kept.copy_(x)
        self.graph.replay()
        return self.figures


def train_model(model, data, clock, log, check, rate=(0.02, 2e-3), muon=True):
    """Stage one. `log` gets a row of figures now and then, `check` is called 16 times."""
    device = model.lm_head.weight.device
    on_gpu = device.type == "cuda"
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    apart = {id(p) for p in [*matrices, *model.lookahead_gate.parameters()]}
    others = [p for p in model.parameters() if id(p) not in apart]
    peaks = [torch.tensor(r, device=device) for r in rate]
    adam = lambda these, lr: torch.optim.AdamW(
        these, lr=lr, betas=(0.9, 0.95), weight_decay=0.0, fused=on_gpu, capturable=on_gpu
    )
    rates = [peak.clone() for peak in peaks]
    optimizers = [Muon(matrices, rates[0]) if muon else adam(matrices, rates[0]), adam(others, rates[1])]
    loss_of = looped_loss
    if on_gpu:
        model.loop = torch.compile(model.model.forward, dynamic=False)
        loss_of = torch.compile(looped_loss, dynamic=False)
    gate, prior = model.model.early_exit_gate, torch.tensor(PRIOR, device=device)[:, None, None]

    def step(parts):
        figures = []
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        for part, weight in zip(parts, (1.0, ENGLISH_WEIGHT)):
            _, _, _, read, targets, counts, exits = part
            left = exits.gather(1, read)
            loss, each, usual = loss_of(
                states_read(model, part), targets, counts, left, prior, model.lm_head.weight, gate.weight, gate.bias
            )
            (weight * loss).backward()
            figures += [each, usual]
        nn.utils.clip_grad_norm_(others, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        return figures

    checks = 0
    while (done := clock.done()) < 1:
        for now, peak in zip(rates, peaks):
            torch.mul(peak, min(1, (clock.step + 1) / 200) * min(1, (1 - done) / 0.7 + 0.005), out=now)
        if clock.step == 0 and on_gpu:
            step(list(data.parts(early=True)))  # Compiles.
            step = Captured(step, data.parts(early=True))
            model.loop = model.model.forward
        figures = step(data.parts(early=True))
        clock.step += 1
        if clock.step % 8 == 0:
            data.questions.renew()
        if clock.step % 50 == 0 or clock.step == 1:
            log(clock.step, time.time() - clock.begun, *(f.tolist() for f in figures))
        if done >= checks / 16:
            check(clock.step)
            checks = int(done * 16) + 1


def fit_gates(model, data, clock, loss_of, gates, log):
    """Trains linear layers on the frozen model's states."""
    optimizer = torch.optim.Adam(gates.parameters(), lr=5e-3)
    while (done := clock.done()) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1, (clock.step + 1) / 20) * (1.02 - done)
        total = 0
        for part, weight in zip(data.parts(early=False), (1.0, ENGLISH_WEIGHT)):
            with torch.no_grad():
                states = states_read(model, part)
            losses = loss_of(states, part[4])
            total = total + weight * (losses * part[5]).sum() / (part[5].sum() * len(losses))
        total.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock.step += 1
        if clock.step % 8 == 0:
            data.questions.renew()
        if clock.step % 20 == 0 or clock.step == 1:
            log(clock.step, time.time() - clock.begun, total.item())


def train_gate(model, data, clock, log):
    """Stage two: gates alone, one for each gamma. A gate's label is the chance that going on is not worth it."""
    gates = nn.Linear(model.config.hidden_size, len(GAMMAS)).to(model.lm_head.weight.device)
    nn.init.zeros_(gates.weight)
    gammas = torch.tensor(GAMMAS, device=gates.weight.device)

    def loss(states, targets):
        with torch.no_grad():
            losses = cross_entropy(model.lm_head(states), targets)
            best_later = losses.flip(0).cummin(0).values.flip(0)[1:]
            gain = (losses[:-1] - best_later).clamp_min(0)[..., None]
            stop = 1 - torch.sigmoid(SLOPE * (gain - gammas))
        return F.binary_cross_entropy_with_logits(gates(states[:-1].float()), stop, reduction="none").mean(-1)

    fit_gates(model, data, clock, loss, gates, log)
    return [(gamma, gates.weight[i : i + 1].detach(), gates.bias[i : i + 1].detach()) for i, gamma in enumerate(GAMMAS)]


def train_lookahead(model, data, clock, log):
    """Stage three: the lookahead gate learns from a state the released gate's hazard after the next loop."""

    def loss(states, _):
        with torch.no_grad():
            hazards = model.hazard(states[1:-1])
        logits = model.lookahead_gate(states[:-2].float()).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logits, hazards, reduction="none")

    fit_gates(model, data, clock, loss, model.lookahead_gate, log)
