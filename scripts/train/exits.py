"""When tokens leave the loop: the server's rules, run over whole sequences at once.

A prompt runs all loops. A decoded position leaves after the loop that its rule names; later positions read
its keys and values in plane min(loop, exit), the layout `last_exited`. Whether a position leaves after loop d
depends on planes up to d alone, so one pass over a whole sequence computes what decoding it token by token
with a cache would: nothing here is an approximation.
"""

import torch


class FullDepth:
    """All loops, or the same number of them everywhere."""

    name = "fixed depth"

    def __init__(self, depth: int):
        self.threshold = self.depth = depth

    def begin(self, model, decoded):
        self.leaves = torch.full_like(decoded, self.depth, dtype=torch.int8)

    def after(self, depth, state):
        pass


class Gate:
    """A hazard gate: a token leaves once its chance to have left by now reaches the threshold.

    `released`: the gate as it is. `delayed`: its decision takes effect one loop later. `lookahead`: the
    trained lookahead gate's prediction of the next loop's hazard stands for that loop's, so an exit is known
    one loop ahead; the released gate's first hazard begins the product, and nothing leaves before loop 2.
    """

    def __init__(self, name: str, threshold: float, min_depth: int = 1):
        self.name, self.threshold, self.min_depth = name, threshold, min_depth

    def begin(self, model, decoded):
        self.model, self.last = model, model.config.total_ut_steps
        self.survival = torch.ones_like(decoded, dtype=torch.float32)
        self.leaves = torch.zeros_like(decoded, dtype=torch.int8)

    def after(self, depth, state):
        if depth == self.last or self.threshold >= 1:
            return
        ahead = self.name != "released"
        if ahead and depth == self.last - 1 and self.name == "lookahead":
            return  # Its next loop is the last one anyway.
        if self.name != "lookahead" or depth == 1:
            self.survival *= 1 - self.model.hazard(state)
        if self.name == "lookahead":
            self.survival *= 1 - self.model.next_hazard(state)
        if depth + (self.name == "lookahead") < self.min_depth:
            return
        fires = (1 - self.survival >= self.threshold) & (self.leaves == 0)
        self.leaves[fires] = depth + ahead


@torch.no_grad()
def run(model, tokens, positions, decoded, rule, allowed=None, readout=None):
    """States at the exits and the loops after which tokens left, both by (row, position).

    `decoded`: positions whose exit the rule decides; the others run all loops. `readout`: a list that gets
    the states of all loops.
    """
    last = model.config.total_ut_steps
    rule.begin(model, decoded)

    def still(depth, state):
        rule.after(depth, state)
        return ~decoded | (rule.leaves == 0) | (rule.leaves > depth)

    states = model(tokens, positions, allowed, still)
    left = torch.where(decoded & (rule.leaves > 0), rule.leaves, last)
    chosen = states[-1]
    for depth in range(1, last):
        chosen = torch.where((left == depth)[..., None], states[depth - 1], chosen)
    if readout is not None:
        readout.extend(states)
    return chosen, left
