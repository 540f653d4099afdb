"""The mixture of experts: the softmax over all chooses, and the chosen weights are divided by their sum."""
import numpy as np

from model import Model, silu, softmax


def mixture(model, x, name, scores, bias=0):
    """Experts of the largest score + bias, weighed by their scores, which are divided by the sum of the chosen."""
    gate, up, down = (model.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    out = np.zeros_like(x)
    for row, (h, score) in enumerate(zip(x, scores)):
        chosen = np.argsort(-(score + bias), kind="stable")[:model.key("expert_used_count")]
        for expert in chosen:
            weight = score[expert] / score[chosen].sum()
            out[row] += weight * (down[expert] @ (silu(gate[expert] @ h) * (up[expert] @ h)))
    return out


class Qwen3Moe(Model):
    def feed_forward(self, x, name):
        return mixture(self, x, name, softmax(self.linear(x, f"{name}.ffn_gate_inp")))
